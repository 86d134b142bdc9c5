"""Plans the training of a transformer on mixed GPUs, and proves how good the plan is.

    import hetplan

    solution = hetplan.solve("instances/hetero_small.yaml", time_limit_s=60)
    print(solution.status, solution.step_time_s, solution.gap)

Times are in seconds, sizes in bytes, money in USD. Whatever goes wrong with an input is raised as
a `PlannerError`, whose text is one line that says where, what was found and what is allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from formulations.errors import PlannerError

# All that is slow to import is imported by the functions that need it.
if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from formulations.instance import Instance
    from solver.comparison import Answer
    from solver.comparison import Evaluation as Judged
    from solver.comparison import Shortlist as Chosen
    from solver.document import PlanDocument
    from solver.files import Envelope
    from solver.front_document import FrontDocument
    from solver.lengths_document import LengthsDocument
    from solver.options import ExportTarget, Method
    from solver.result import Infeasibility, OtherTarget, Result
    from solver.simulate import Step
    from solver.switch_document import SwitchDocument
    from solver.verify import Verification

__all__ = [
    "Evaluation",
    "Explanation",
    "Front",
    "Lengths",
    "PlannerError",
    "Shortlist",
    "Solution",
    "Switch",
    "diff",
    "evaluate",
    "explain",
    "export",
    "lengths",
    "load",
    "load_plan",
    "pareto",
    "report",
    "shortlist",
    "solve",
    "switch",
    "verify",
]


def _drawn(parts: "Sequence[Any]") -> str:
    """What a command prints, 100 columns wide."""
    from io import StringIO

    from solver.report.layout import draw

    page = StringIO()
    draw(parts, page)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def _kind(document: "Envelope") -> Any:
    """What commands do with such a document."""
    from solver.cli.kinds import KINDS

    return next(kind for kind in KINDS if kind.file is type(document))


class _Shown:
    """A result whose table a notebook shows."""

    def summary(self) -> str:
        """What its command prints, 100 columns wide."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.summary())}</pre>"


@dataclass(frozen=True)
class _Stored(_Shown):
    """What a command writes as a file, all of it in `document`, field by field."""

    document: Any

    def to_json(self) -> str:
        """The file's text, as `--out` writes it."""
        from solver.files import to_json

        return to_json(self.document)

    def summary(self) -> str:
        """What `show` prints."""
        return _drawn(_kind(self.document).text(self.document))


@dataclass(frozen=True)
class Solution(_Stored):
    """The best plan found, and what is proved about it.

    `document` is the content of the plan file, field by field: degrees in `document.config`,
    places, times and memory of every stage in `document.replicas`, and more. `infeasibility`: which
    constraint stands in the way and what would help, where a search proved that there is no plan.
    `other_targets`: launch targets that a search found may have better plans; no file keeps them.
    """

    document: "PlanDocument"
    infeasibility: "Infeasibility | None" = None
    other_targets: "tuple[OtherTarget, ...]" = ()

    @property
    def status(self) -> str:
        """`optimal`, `feasible`, `infeasible` or `unknown`."""
        return str(self.document.status)

    @property
    def step_time_s(self) -> float | None:
        """Simulated time of one optimizer step; None without a plan."""
        return self.document.step_time_s

    @property
    def lower_bound_s(self) -> float | None:
        """No plan is faster; where money is minimised, none is at this price per hour."""
        return self.document.lower_bound_s

    @property
    def gap(self) -> float | None:
        """By which share of its objective the plan may miss the best; None without a plan."""
        return self.document.gap

    def summary(self, *, details: bool = False) -> str:
        """What `solve` prints, also with `--details`, 100 columns wide."""
        from solver.report.text import solution_text

        why, others = self.infeasibility, self.other_targets
        return _drawn(solution_text(self.document, why, others, details=details))

    def __repr__(self) -> str:
        config, step_s = self.document.config, self.step_time_s
        if config is None or step_s is None:
            return f"<Solution: {self.status}>"
        return f"<Solution: {self.status}, {_words(config)}, {1e3 * step_s:.4g} ms per step>"

    def _repr_html_(self) -> str:
        """Of a notebook: what `solve` prints, and one step drawn below."""
        from html import escape

        page = "" if self.document.config is None else _kind(self.document).page(self.document)
        frame = page and f'<iframe srcdoc="{escape(page)}" width="100%" height="720"></iframe>'
        return super()._repr_html_() + frame


def _step(document: "PlanDocument") -> "Step":
    """One simulated step of a plan."""
    from solver.plan_figures import costs_of
    from solver.simulate import simulate_step

    return simulate_step(costs_of(document))


def _words(config: Any) -> str:
    """Degrees of a configuration, in short."""
    from solver.report.naming import one_line

    return one_line(config).partition(", recomputed")[0]


class Front(_Stored):
    """Which clusters are worth their money, or which nodes help; `document.points` has plans."""

    document: "FrontDocument"

    def __repr__(self) -> str:
        points, clusters = len(self.document.points), len(self.document.clusters)
        return f"<Front: {points:,} points of {clusters:,} clusters>"

    def rows(self) -> list[dict[str, object]]:
        """A row for each point and the terms it is rented on, fastest first; s and USD."""
        groups = [group.name for group in self.document.family.instance.cluster.groups]
        rows = list[dict[str, object]]()
        for point in self.document.points:
            nodes = zip(groups, point.nodes, strict=True)
            of_point: dict[str, object] = {f"nodes of {name}": number for name, number in nodes}
            for terms in point.terms:
                figures = {
                    "on_spot": ", ".join(terms.on_spot),
                    "step_time_s": point.plan.step_time_s,
                    "gap": point.plan.gap,
                    "sequences_per_s": terms.sequences_per_s,
                    "usd_per_hour": terms.price_usd_per_hour,
                    "usd_per_step": terms.cost_usd_per_step,
                }
                rows.append(of_point | figures)
        return rows

    def to_frame(self) -> Any:
        """The same as a `pandas.DataFrame`; PlannerError where pandas is not installed."""
        from importlib import import_module

        try:
            return import_module("pandas").DataFrame(self.rows())
        except ImportError as error:
            raise PlannerError("to_frame needs pandas: pip install pandas") from error

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Throughput against cost of all clusters; on new axes of matplotlib unless given."""
        from solver.report.front_picture import draw_front

        if axes is None:
            from matplotlib import pyplot

            _, axes = pyplot.subplots(layout="constrained")
        draw_front(axes, self.document)
        return axes

    def solutions(self) -> list[Solution]:
        """The plan of every point."""
        return [Solution(point.plan) for point in self.document.points]


class Lengths(_Stored):
    """Which strategy runs which sequences of a step of many lengths."""

    document: "LengthsDocument"

    def __repr__(self) -> str:
        status, step_s = self.document.status, self.document.step_time_s
        return f"<Lengths: {status}, {1e3 * step_s:.4g} ms per step>"


class Switch(_Stored):
    """Who sends which slices to whom when one plan takes over from another."""

    document: "SwitchDocument"

    def __repr__(self) -> str:
        return f"<Switch: {1e3 * self.document.time_s:.4g} ms, gap {self.document.gap:.2%}>"


@dataclass(frozen=True)
class Evaluation(_Shown):
    """What runs today, as a plan, and how it stands: the best plan, and what would help."""

    solution: Solution
    judged: "Judged"

    def __repr__(self) -> str:
        return repr(self.solution).replace("<Solution: ", "<Evaluation: ")

    def summary(self) -> str:
        """What `evaluate` prints."""
        from solver.report.compared import evaluation_text

        document = self.solution.document
        return _drawn(evaluation_text(document, _step(document), self.judged))

    def to_dict(self) -> dict[str, object]:
        """What `evaluate --json` prints."""
        from solver.report.compared import evaluation_json

        return evaluation_json(self.solution.document, self.judged)


@dataclass(frozen=True)
class Explanation(_Shown):
    """What limits a plan, and what other machines or strategies would save, most first."""

    solution: Solution
    changes: "tuple[Answer, ...]"

    def __repr__(self) -> str:
        return f"<Explanation: {len(self.changes)} changes>"

    def summary(self) -> str:
        """What `explain` prints."""
        from solver.report.compared import explanation

        document = self.solution.document
        return _drawn(explanation(document, _step(document), self.changes))


#: What a file of an instance says, field by field: `{"name": ..., "workload": {...}, ...}`.
Fields = Mapping[str, object]


def _text(instance: str | Path | Fields) -> tuple[str, str, Path]:
    """YAML of an instance, its name in errors, and where its paths start."""
    from yaml import YAMLError, safe_dump

    from formulations.instance.documents import read_text
    from formulations.instance.load import ALLOWED

    if not isinstance(instance, Mapping):
        path = Path(instance)
        return read_text(path, ALLOWED), str(path), path.parent
    try:
        return safe_dump(dict(instance), sort_keys=False), "instance", Path()
    except YAMLError as error:
        problem = " ".join(map(str, error.args))
        raise PlannerError(f"instance: {problem}; allowed: what YAML can say") from error


@dataclass(frozen=True)
class Shortlist(_Shown):
    """Plans to measure, most useful first, that together most likely hold the fastest.

    `chosen`: of each the plan, how far `behind` the best prediction it is, its `chance` to be the
    fastest, and the `gain` of measuring it.
    """

    best: "Result"
    chosen: "Chosen"

    def __repr__(self) -> str:
        return f"<Shortlist: {len(self.chosen.listed)} plans>"

    def summary(self) -> str:
        """What `shortlist` prints."""
        from solver.report.compared import shortlist_text

        return _drawn(shortlist_text(self.best, self.chosen))

    def jobs(self, out: str | Path, to: "ExportTarget | None" = None) -> list[str]:
        """Writes plans, a job for each and measured.csv, for `calibrate`; which have no job."""
        from solver.cli.files import write_folder
        from solver.evaluate.shortlist import jobs

        texts, refused = jobs(self.best.instance, self.chosen, to)
        write_folder(Path(out), texts)
        return refused


def load(instance: str | Path | Fields) -> "Instance":
    """The instance of a YAML file, or of a mapping with the fields of one.

    A mistake in a mapping is told by its field, and by its line as YAML.
    """
    from formulations.instance.load import parse_instance

    return parse_instance(*_text(instance))


def _problem(instance: "Instance | str | Path | Fields") -> "Instance":
    return load(instance) if isinstance(instance, str | Path | Mapping) else instance


def load_plan(path: str | Path) -> Solution:
    """What a plan file holds; `verify` says whether to believe it."""
    from solver.document import PlanDocument

    return Solution(PlanDocument.read(Path(path)))


def solve(
    instance: "Instance | str | Path | Fields",
    *,
    method: "Method" = "exact",
    time_limit_s: float | None = None,
    gap: float = 0.0,
    seed: int = 0,
    workers: int = 1,
    study: str | Path | None = None,
) -> Solution:
    """The best plan of an instance, or of an instance file; options as those of the command.

    Without a time limit the search goes on until the plan is proved to be within `gap` (relative)
    of the best. Ctrl-C ends it with the best plan so far. `study`: a file that keeps what is
    closed, and from which an equal call goes on.
    """
    from solver.options import SolveOptions
    from solver.plan_figures import build_document
    from solver.search.targets import solve as search
    from solver.study.store import study_at

    problem = _problem(instance)
    options = SolveOptions(method, time_limit_s, gap, seed, workers)
    with study_at(None if study is None else Path(study), problem) as kept:
        result = search(problem, options, None, kept)
    document = build_document(result, options)
    return Solution(document, result.infeasibility, result.other_targets)


def verify(
    plan: Solution | str | Path,
    instance: "Instance | str | Path | Fields | None" = None,
    *,
    quick: bool = False,
    time_limit_s: float | None = None,
) -> "Verification":
    """What is wrong with a plan or a plan file: `problems`, and whether it is proved: `complete`.

    With an instance, or an instance file, also whether the plan is for that one. quick: what an
    exhaustive search closed stays at its word; so does what is not proved within the time limit.
    """
    from solver.verify import Effort, instance_differences, verify_document

    document = (plan if isinstance(plan, Solution) else load_plan(plan)).document
    found = verify_document(document, Effort(time_limit_s, "quick" if quick else "all"))
    if instance is None:
        return found
    wanted = _problem(instance)
    problems = (*found.problems, *instance_differences(document.instance, wanted))
    return replace(found, problems=problems)


Plan = Solution | str | Path


def _checked(plan: Plan) -> "PlanDocument":
    """A plan, checked but for its proof. Raises PlanError if it was changed, or holds no plan."""
    from solver.cli.files import checked_plan, refuse_planless

    if not isinstance(plan, Solution):
        return checked_plan(Path(plan))
    refuse_planless(Path("the solution"), plan.document)
    return plan.document


def pareto(
    instance: str | Path | Fields,
    *,
    subsets: bool = False,
    budget_usd: float | None = None,
    deadline_s: float | None = None,
    sequences: int | None = None,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    seed: int = 0,
    workers: int = 1,
    study: str | Path | None = None,
) -> Front:
    """The clusters of an instance that no other beats in both throughput and money.

    Its nodes are ranges. With a budget the fastest cluster within it, with a deadline the cheapest,
    both of a training of `sequences`. subsets: which nodes of one cluster help, whatever they cost.
    """
    from formulations.instance.load import parse_family
    from solver.clusters.search import front_of
    from solver.clusters.wanted import Wanted
    from solver.options import SolveOptions
    from solver.study.store import study_at

    options = SolveOptions("exact", time_limit_s, gap, seed, workers)
    wanted = Wanted(subsets, budget_usd, deadline_s, sequences)
    text, name, folder = _text(instance)
    family, aim = wanted.family(parse_family(text, name, folder), name)
    with study_at(None if study is None else Path(study), family.instance) as kept:
        return Front(front_of(family, aim, options, kept))


def evaluate(
    instance: "Instance | str | Path | Fields",
    *,
    megatron: str | Path | None = None,
    torchtitan: str | Path | None = None,
    degrees: str | None = None,
    order: str | None = None,
    time_limit_s: float = 60.0,
    gap: float = 0.001,
    workers: int = 1,
) -> Evaluation:
    """The step of what runs today, by launch files or degrees, and what would make it faster.

    order: node groups of the hosts in rank order, such as small,big*2. time_limit_s: for the best
    plan; 0: it is not looked for.
    """
    from solver.evaluate.evaluation import compared, predicted
    from solver.evaluate.read import read_run
    from solver.options import SolveOptions
    from solver.search.driver import solve as search

    problem = _problem(instance)
    flags = None if megatron is None else Path(megatron)
    run = read_run(problem, flags, None if torchtitan is None else Path(torchtitan), degrees, order)
    document, judged = predicted(run)
    if time_limit_s:
        options = SolveOptions(time_limit_s=time_limit_s, gap=gap, workers=workers)
        judged = compared(run, judged, options, search)
    return Evaluation(Solution(document), judged)


def explain(
    plan: Plan, *, time_limit_s: float = 60.0, gap: float = 0.001, workers: int = 1
) -> Explanation:
    """What limits a plan, and what changes of machines or strategies would save, each solved."""
    from solver.explain.what_ifs import answers
    from solver.options import SolveOptions
    from solver.plan_figures import plan_of

    document = _checked(plan)
    options = SolveOptions(time_limit_s=time_limit_s, gap=gap, workers=workers)
    changes = answers(document.instance, plan_of(document), options, lambda done, total: None)
    return Explanation(Solution(document), tuple(changes))


def shortlist(
    instance: "Instance | str | Path | Fields",
    count: int = 5,
    *,
    time_limit_s: float = 60.0,
    gap: float = 0.001,
    seed: int = 0,
    workers: int = 1,
) -> Shortlist:
    """Which plans to measure, at most `count`: the prediction of a step has an error."""
    from solver.evaluate.shortlist import shortlist as choose
    from solver.options import SolveOptions

    options = SolveOptions("exact", time_limit_s, gap, seed, workers)
    return Shortlist(*choose(_problem(instance), count, options))


def diff(first: Plan, second: Plan) -> str:
    """Where two plans differ, as the command prints it: degrees, time, memory, money."""
    from solver.report.compared import difference

    return _drawn(difference(_checked(first), _checked(second), ("first", "second")))


def export(
    plan: Plan, to: "ExportTarget", out: str | Path | None = None, *, own_model: bool = False
) -> dict[str, str]:
    """The files with which a framework launches a plan, by name; `out`: a new folder for them.

    own_model: the model is yours, and nothing of it is written or refused.
    """
    from solver.cli.files import check_folder, write_folder
    from solver.export.registry import exported
    from solver.plan_figures import plan_of

    if out is not None:
        check_folder(Path(out))
    document = _checked(plan)
    name = "plan.json" if isinstance(plan, Solution) else str(plan)
    texts = exported(document.instance, plan_of(document), to, name, own_model)
    if out is not None:
        write_folder(Path(out), texts)
    return dict(texts)


def report(
    plan: "Solution | Front | Lengths | Switch | str | Path",
    out: str | Path = "report.html",
    *,
    trace: str | Path | None = None,
) -> None:
    """Writes one HTML page that needs no network; trace: of a plan, one step for Perfetto."""
    from solver.cli.files import check_writable, write_text
    from solver.cli.kinds import checked_kind, part_of

    if isinstance(plan, str | Path):
        kind, document = checked_kind(Path(plan))
    else:
        document = plan.document
        kind = _kind(document)
    files = {Path(out): part_of(kind, "page", "report")}
    if trace is not None:
        files[Path(trace)] = part_of(kind, "trace", "trace")
    check_writable(*files)
    for path, write in files.items():
        write_text(path, write(document))


def lengths(
    instance: "Instance | str | Path | Fields",
    *,
    order: Literal["ascending", "free"] = "ascending",
    time_limit_s: float | None = None,
    gap: float = 0.0,
    seed: int = 0,
    workers: int = 1,
) -> Lengths:
    """Which strategy runs which sequences of an instance whose `lengths` are many."""
    from solver.evaluate.evaluation import lengths_document
    from solver.lengths.candidates import candidates
    from solver.options import SolveOptions

    problem = _problem(instance)
    if problem.lengths is None:
        raise PlannerError("no section lengths; allowed: one with histogram, file or log_normal")
    options = SolveOptions(time_limit_s=time_limit_s, gap=gap, seed=seed, workers=workers)
    return Lengths(lengths_document(problem, candidates(problem), order, options))


def switch(
    before: Plan,
    after: Plan,
    moves: Literal["parameters", "gradients", "both"] = "parameters",
    *,
    time_limit_s: float | None = None,
) -> Switch:
    """Who sends which slices of tensors to whom from one plan to another, soonest done."""
    from solver.switching.quickest import check_alike, switch_document

    first, second = _checked(before), _checked(after)
    check_alike(first, second, ("before", "after"))
    return Switch(switch_document(first, second, moves, time_limit_s))
