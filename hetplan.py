"""Plans the training of a transformer on mixed GPUs, and proves how good the plan is.

    import hetplan

    solution = hetplan.solve("instances/hetero_small.yaml", time_limit_s=60)
    print(solution.status, solution.step_time_s, solution.gap)

Times are in seconds, sizes in bytes, money in USD. Whatever goes wrong with an input is raised as
a `PlannerError`, whose text is one line that says where, what was found and what is allowed.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from formulations.errors import PlannerError

# All that is slow to import is imported by the functions that need it.
if TYPE_CHECKING:
    from formulations.instance import Instance
    from solver.document import PlanDocument
    from solver.options import Method
    from solver.result import Infeasibility, OtherTarget
    from solver.verify import Verification

__all__ = ["PlannerError", "Solution", "load", "load_plan", "solve", "verify"]


@dataclass(frozen=True)
class Solution:
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

    def to_json(self) -> str:
        """The plan file's text, as `solve --out` writes it."""
        from solver.files import to_json

        return to_json(self.document)

    def summary(self, *, details: bool = False) -> str:
        """What `solve` prints, also with `--details`, 100 columns wide."""
        from io import StringIO

        from solver.report.layout import draw
        from solver.report.text import solution_text

        page = StringIO()
        why, others = self.infeasibility, self.other_targets
        draw(solution_text(self.document, why, others, details=details), page)
        return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


def load(path: str | Path) -> "Instance":
    """The instance that a YAML file describes."""
    from formulations.instance.load import load_instance

    return load_instance(Path(path))


def load_plan(path: str | Path) -> Solution:
    """What a plan file holds; `verify` says whether to believe it."""
    from solver.document import PlanDocument

    return Solution(PlanDocument.read(Path(path)))


def solve(
    instance: "Instance | str | Path",
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

    problem = load(instance) if isinstance(instance, str | Path) else instance
    options = SolveOptions(method, time_limit_s, gap, seed, workers)
    with study_at(None if study is None else Path(study), problem) as kept:
        result = search(problem, options, None, kept)
    document = build_document(result, options)
    return Solution(document, result.infeasibility, result.other_targets)


def verify(
    plan: Solution | str | Path,
    instance: "Instance | str | Path | None" = None,
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
    wanted = load(instance) if isinstance(instance, str | Path) else instance
    problems = (*found.problems, *instance_differences(document.instance, wanted))
    return replace(found, problems=problems)
