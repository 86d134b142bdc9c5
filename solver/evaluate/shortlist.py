"""Which plans to measure: together they hold the fastest with the best chance, by the cost model.

The log step times of the candidates are taken to be normal, with the predicted mean m and the
covariance of `solver.uncertainty`. Plans are picked one by one, each the one that lowers the
expected minimum of those picked most:
    argmin_j E[min(min_{i picked} X_i, X_j)]                                                   (1)
(Ginsbourger, Le Riche, Carraro 2010, doi 10.1007/978-3-642-10701-6_6, batch expected improvement,
greedy; the expectation over drawn times). The first is the one of the lowest mean. A plan like one
that is picked is off by the same factors: then it hardly lowers (1), and unlike plans come first.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import exp, sqrt

import numpy as np

from formulations.costs.intervals import Numbers
from formulations.errors import PlanError
from formulations.instance import Instance
from solver.evaluate.run_plan import judged
from solver.export.registry import EXPORTERS, exported
from solver.files import to_json
from solver.heuristics.time_tables import TimeTables
from solver.interrupt import Deadline
from solver.options import ExportTarget, SolveOptions
from solver.plan_figures import build_document
from solver.result import Listed, Result, Shortlist, Status, objective_weight
from solver.search.driver import solve
from solver.search.plan_search import EFFORTS, PlanSearch
from solver.uncertainty import BAR, covariance, step_estimate

#: Draws of the expectation (1).
DRAWS = 16384
#: Variance that makes any covariance positive definite in floats.
JITTER = 1e-9
#: A plan that lowers the expected step by a smaller share is not worth a measurement.
LEAST_GAIN = 0.00001
#: Of the time limit, for the proved best plan.
BEST = 0.5


def picked(means: Numbers, joint: Numbers, count: int) -> Iterator[tuple[int, float]]:
    """(1): candidates by number, each with the share by which it lowers the expected minimum.

    means [n]: of log times; joint [n, n]: their covariance. Ends before `count` where no candidate
    lowers it by LEAST_GAIN. The same for the same figures.
    """
    times = drawn_times(means, joint)
    first = int(means.argmin())
    yield first, 0.0
    shortest = times[:, first]
    for _ in range(count - 1):
        expected = np.minimum(times, shortest[:, None]).mean(axis=0)  # (1), of every j
        best = int(expected.argmin())
        gain = 1 - float(expected[best] / shortest.mean())
        if gain < LEAST_GAIN:
            return
        yield best, gain
        shortest = np.minimum(shortest, times[:, best])


def drawn_times(means: Numbers, joint: Numbers) -> Numbers:
    """[draw, candidate] times, of DRAWS draws that are the same in every run."""
    joint = joint + JITTER * np.eye(len(means))
    rng = np.random.default_rng(0)
    return np.exp(rng.multivariate_normal(means, joint, DRAWS, method="cholesky"))


def shortlist(
    instance: Instance,
    count: int,
    options: SolveOptions,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Result, Shortlist]:
    """What `solve` finds in its part of the time, and up to `count` plans to measure.

    A candidate is the best plan seen of one configuration whose proved bound is within the margin:
    the distance that two plans' errors bridge in one of ten cases. tell: candidates done, and all.
    """
    limit_s = options.time_limit_s
    half_s = None if limit_s is None else BEST * limit_s
    best = solve(instance, replace(options, time_limit_s=half_s))
    if best.plan is None:
        return best, Shortlist((), 0, best.status is Status.INFEASIBLE, 0.0)
    deadline = Deadline(None if limit_s is None else limit_s - best.runtime_s)
    first = step_estimate(instance, best.plan)
    margin = BAR * sqrt(2) * first.deviation
    times, alone = TimeTables(instance), replace(options, workers=1, time_limit_s=None)
    # Those whose closed forms allow a plan within the margin, best bound first
    cutoff = exp(first.log_s + margin) * 1e9 * objective_weight(instance, best.plan.config)
    open_list = PlanSearch(instance, alone, times=times, below=cutoff).open_list
    near = open_list.unpacked(open_list.open(cutoff), cutoff, deadline.over)
    near.sort(key=lambda task: task.objective)
    plans, complete = [best.plan], True  # the best one seen of each configuration
    for n, config in enumerate(task.config for task in near):
        if deadline.over():
            complete = False
            break
        if config != best.plan.config:
            # What a search of least effort sees
            search = PlanSearch(instance, alone, times=times, space=iter([config]))
            search.first_plans([config])
            search.run(efforts=EFFORTS[:1])
            if (plan := search.incumbents.known.plan) is not None:
                plans.append(plan)
        tell(n + 1, len(near))
    estimates = [first, *(step_estimate(instance, plan) for plan in plans[1:])]
    weights = [objective_weight(instance, plan.config) for plan in plans]
    means = np.array([estimate.log_s for estimate in estimates]) + np.log(weights)
    joint = covariance(estimates)
    fastest = drawn_times(means, joint).argmin(axis=1)
    listed = tuple(
        Listed(
            plan=plans[i],
            step_time_ns=round(exp(estimates[i].log_s) * 1e9),
            behind=exp(means[i] - means.min()) - 1,
            chance=float((fastest == i).mean()),
            gain=gain,
        )
        for i, gain in picked(means, joint, count)
    )
    return best, Shortlist(listed, len(plans), complete, exp(margin) - 1)


#: Of a shortlist's folder: what calibrate reads.
MEASURED = "measured.csv"


def jobs(
    instance: Instance, plans: Shortlist, to: ExportTarget | None
) -> tuple[dict[str, str], list[str]]:
    """The files of a shortlist's folder, and why plans have no job.

    plan-N.json, a job in the folder N, and a table for the measured seconds. to: None for the
    target of the instance, or the first one that can launch the plan where that is any.
    """
    texts, refused = dict[str, str](), list[str]()
    rows = ["plan,seconds,memory\n"]
    for n, listed in enumerate(plans.listed, 1):
        name, target = f"plan-{n}.json", to or instance.search.target
        texts[name] = to_json(build_document(judged(instance, listed.plan), SolveOptions()))
        rows.append(f"{name},,\n")
        errors = []
        launchers = tuple(EXPORTERS) if target == "any" else (target,)
        for own_model, launcher in product((False, True), launchers):
            try:
                files = exported(instance, listed.plan, launcher, name, own_model)
            except PlanError as error:
                errors.append(str(error))
                continue
            texts |= {f"{n}/{file}": text for file, text in files.items()}
            break
        else:
            refused.append(errors[0])
    texts[MEASURED] = "".join(rows)
    return texts, refused
