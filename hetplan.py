"""Plans the training of a transformer on mixed GPUs, and proves how good the plan is.

    import hetplan

    solution = hetplan.solve("instances/hetero_small.yaml", time_limit_s=60)
    print(solution.status, solution.step_time_s, solution.gap)

Times are in seconds, sizes in bytes, money in USD. Whatever goes wrong with an input is raised as
a `PlannerError`, whose text is one line that says where, what was found and what is allowed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from html import escape
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from formulations.errors import PlannerError, check_values
from formulations.node_sharing import NodeSplit
from formulations.units import NANOSECONDS_PER_SECOND
from solver.fleets.distribution import Distribution
from solver.options import ExportTarget, Method, SolveOptions
from solver.report.quantities import percent, time_text

# All that is slow to import is imported by the functions that need it.
if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from formulations.instance import Instance as Resolved
    from formulations.instance.instance import Family
    from solver.document import PlanDocument
    from solver.fleet_document import FleetDocument
    from solver.fleets.designs import TemplatesDocument
    from solver.front_document import FrontDocument
    from solver.lengths_document import LengthsDocument, SwitchDocument
    from solver.measure.corrected import Corrected
    from solver.result import Answer, Infeasibility, OtherTarget, Result
    from solver.result import Evaluation as Judged
    from solver.result import Shortlist as Chosen
    from solver.verify import Verification

__all__ = [
    "Calibrated",
    "Evaluation",
    "Explanation",
    "Fleet",
    "Front",
    "Instance",
    "Lengths",
    "PlannerError",
    "Shortlist",
    "Solution",
    "Sweep",
    "Switch",
    "Templates",
    "calibrate",
    "catalogue",
    "diff",
    "evaluate",
    "explain",
    "export",
    "lengths",
    "load",
    "load_plan",
    "pareto",
    "recover",
    "report",
    "shortlist",
    "solve",
    "sweep",
    "switch",
    "templates",
    "verify",
]

#: What a file of an instance says, field by field: `{"name": ..., "workload": {...}, ...}`.
Fields = Mapping[str, object]


class Instance:
    """A planning problem in the words of its file: built in code, read, and changed.

    Checked when it is made: a mistake raises PlannerError with its field, and its line as YAML.
    text: YAML, whose paths start in `folder`. name: for errors. family: what it means, with the
    most nodes of every group.
    """

    def __init__(
        self, fields: Fields | None = None, /, *, folder: str | Path = ".", **sections: object
    ) -> None:
        """Of a mapping, or section by section; `folder`: where paths in it start."""
        from yaml import YAMLError, safe_dump

        try:
            text = safe_dump({**(fields or {}), **sections}, sort_keys=False)
        except YAMLError as error:
            problem = " ".join(map(str, error.args))
            raise PlannerError(f"instance: {problem}; allowed: what YAML can say") from error
        self._parse(text, "instance", Path(folder))

    def _parse(self, text: str, name: str, folder: Path) -> "Instance":
        from formulations.instance.load import parse_family

        self.text, self.name, self.folder = text, name, folder
        self.family: Family = parse_family(text, name, folder)
        return self

    @classmethod
    def of_text(cls, text: str, name: str = "instance", folder: str | Path = ".") -> "Instance":
        """Of YAML; name: for errors. folder: where paths in it start."""
        return cls.__new__(cls)._parse(text, name, Path(folder))

    @property
    def fields(self) -> dict[str, Any]:
        """What its file says."""
        from formulations.instance.documents import parse_document

        return dict(cast("Fields", parse_document(self.text, self.name).value))

    @cached_property
    def resolved(self) -> "Resolved":
        """What it means, defaults and catalogues applied; PlannerError for ranges of nodes."""
        from formulations.instance.load import parse_instance

        return parse_instance(self.text, self.name, self.folder)

    def with_(
        self, *, nodes: Mapping[str, int | Mapping[str, int]] | None = None, **sections: object
    ) -> "Instance":
        """A changed copy: other numbers of nodes by group, other fields of sections.

        0 nodes leave a group out. A mapping changes the fields that it names, None takes a section
        away: `with_(nodes={"a100": 2}, search={"zero": [0, 1]}, limits=None)`.
        """
        fields = self.fields
        groups = {group["name"]: group for group in fields["cluster"]["groups"]}
        for name, number in (nodes or {}).items():
            if name not in groups:
                raise PlannerError(f"nodes: unknown group {name!r}; allowed: {', '.join(groups)}")
            groups[name]["nodes"] = number
        fields["cluster"]["groups"] = [group for group in groups.values() if group["nodes"]]
        for name, said in sections.items():
            before = fields.pop(name, None)
            if isinstance(before, Mapping) and isinstance(said, Mapping):
                said = {**before, **said}
            if said is not None:
                fields[name] = said
        return Instance(fields, folder=self.folder)

    def __repr__(self) -> str:
        from solver.report.text import cluster_text

        instance = self.family.instance
        most = "" if self.family.fewest == self.family.most else "at most "
        return f"<Instance: {instance.workload.name} on {most}{cluster_text(instance)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instance) and self.family == other.family


#: What functions take for an instance: also its path, its fields, and what it means.
Problem: TypeAlias = "Instance | Resolved | str | Path | Fields"


def load(instance: str | Path | Fields) -> Instance:
    """The instance of a YAML file, or of a mapping with the fields of one."""
    from formulations.instance.documents import read_text
    from formulations.instance.load import ALLOWED

    if isinstance(instance, Mapping):
        return Instance(instance)
    path = Path(instance)
    return Instance.of_text(read_text(path, ALLOWED), str(path), path.parent)


def _written(instance: Instance | str | Path | Fields) -> Instance:
    return instance if isinstance(instance, Instance) else load(instance)


def _problem(instance: "Problem") -> "Resolved":
    if isinstance(instance, Instance | str | Path | Mapping):
        return _written(instance).resolved
    return instance


def _drawn(parts: Iterable[Any]) -> str:
    """What a command prints, 100 columns wide."""
    from solver.report.layout import draw

    page = StringIO()
    draw(parts, page)
    return "".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())


class _Shown:
    """A result whose table a notebook shows."""

    def summary(self) -> str:
        """What its command prints, 100 columns wide."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>"


class _Listed(_Shown):
    """A result of several plans, side by side."""

    def rows(self) -> list[dict[str, object]]:
        """A row for each."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """The rows as a `pandas.DataFrame`; PlannerError where pandas is not installed."""
        try:
            return import_module("pandas").DataFrame(self.rows())
        except ImportError as error:
            raise PlannerError("to_frame needs pandas: pip install pandas") from error


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
        from solver.cli.kinds import KINDS

        return _drawn(KINDS[type(self.document)].text(self.document))


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
        from solver.report.naming import one_line

        config, step_s = self.document.config, self.step_time_s
        if config is None or step_s is None:
            return f"<Solution: {self.status}>"
        degrees = one_line(config).partition(", recomputed")[0]
        return f"<Solution: {self.status}, {degrees}, {1e3 * step_s:.4g} ms per step>"

    def _repr_html_(self) -> str:
        """Of a notebook: what `solve` prints, and one step drawn below."""
        from solver.report.html.page import html_page

        page = "" if self.document.config is None else html_page(self.document)
        frame = page and f'<iframe srcdoc="{escape(page)}" width="100%" height="720"></iframe>'
        return super()._repr_html_() + frame


class Front(_Stored, _Listed):
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

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Throughput against cost of all clusters; on new axes of matplotlib unless given."""
        from solver.report.front_picture import draw_front

        axes = _axes() if axes is None else axes
        draw_front(axes, self.document)
        return axes

    def solutions(self) -> list[Solution]:
        """The plan of every point."""
        return [Solution(point.plan) for point in self.document.points]


@dataclass(frozen=True)
class Sweep(_Listed):
    """The best plans of instances side by side, by the names that they were given."""

    solutions: Mapping[str, Solution]

    def __repr__(self) -> str:
        return f"<Sweep: {len(self.solutions)} instances>"

    def rows(self) -> list[dict[str, object]]:
        """A row for each instance, in the order given; s, shares of 1, and USD."""
        names = (
            *("step_time_s", "lower_bound_s", "gap", "throughput_sequences_per_s"),
            *("price_usd_per_hour", "cost_usd_per_step"),
        )
        return [
            {"instance": name, "status": solution.status}
            | {field: getattr(solution.document, field) for field in names}
            for name, solution in self.solutions.items()
        ]

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Step times as bars, from the proved bound on light; on new axes unless given."""
        axes = _axes() if axes is None else axes
        planned = {n: s for n, s in self.solutions.items() if s.step_time_s is not None}
        steps_s = [solution.step_time_s or 0.0 for solution in planned.values()]
        open_s = [s.step_time_s * (s.gap or 0.0) for s in planned.values() if s.step_time_s]
        axes.bar(list(planned), steps_s)
        proved = [step - part for step, part in zip(steps_s, open_s, strict=True)]
        axes.bar(list(planned), open_s, bottom=proved, color="lightgrey", label="not proved")
        axes.set_ylabel("step time, s")
        if any(open_s):
            axes.legend()
        return axes

    def summary(self) -> str:
        """A line for each instance."""
        from solver.report.layout import table_of

        def cell(text: Callable[[float], str], value: float | None) -> str:
            return "-" if value is None else text(value)

        table = table_of(
            self.solutions.items(),
            {"instance": lambda row: row[0], "status": lambda row: row[1].status},
            {
                "step time": lambda row: cell(time_text, row[1].step_time_s),
                "gap": lambda row: cell(percent, row[1].gap),
            },
        )
        return _drawn([table])


def _axes() -> "Axes":
    """New axes of matplotlib."""
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


class Lengths(_Stored):
    """Which strategy runs which sequences of a step of many lengths."""

    document: "LengthsDocument"

    def __repr__(self) -> str:
        status, step_s = self.document.status, self.document.step_time_s
        return f"<Lengths: {status}, {1e3 * step_s:.4g} ms per step>"

    def static_step_s(self, degrees: str) -> float:
        """Seconds of a step with one strategy alone, such as dp=1,tp=16,pp=2: `--static`."""
        from solver.lengths.candidates import static_step

        assert self.document.instance is not None, "files of `lengths` have one"
        return static_step(self.document.instance, degrees)[1] / 1e9


class Switch(_Stored):
    """Who sends which slices to whom when one plan takes over from another."""

    document: "SwitchDocument"

    def __repr__(self) -> str:
        return f"<Switch: {1e3 * self.document.time_s:.4g} ms, gap {self.document.gap:.2%}>"


class Fleet(_Stored):
    """Pipelines of templates on the nodes that are there, and how to go on after failures."""

    document: "FleetDocument"

    def __repr__(self) -> str:
        pipelines, step_s = len(self.document.pipelines), self.document.step_time_s
        return f"<Fleet: {pipelines} pipelines, {1e3 * step_s:.4g} ms per step>"


@dataclass(frozen=True)
class Templates(_Shown):
    """The best pipeline of every size that survives failures, and the fleet of them.

    fleet: the fastest pipelines of these templates on all nodes; None where no template was found.
    """

    document: "TemplatesDocument"
    fleet: Fleet | None

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.document.sizes))
        return f"<Templates: of {sizes} nodes, for {self.document.faults} failures>"

    def summary(self) -> str:
        """What `templates` prints."""
        from solver.cli.fleets import templates_text

        return _drawn(templates_text(self.document))


@dataclass(frozen=True)
class Calibrated(_Shown):
    """An instance whose layer times were corrected by measured steps."""

    instance: Instance
    corrected: "Corrected"

    def __repr__(self) -> str:
        before, after = (self.corrected.error(corrected=applied) for applied in (False, True))
        return f"<Calibrated: error {before:.1%} before, {after:.1%} now>"

    def summary(self) -> str:
        """What `calibrate` prints."""
        from solver.measure.corrected import summary

        return "".join(f"{line}\n" for line in summary(self.corrected))


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

        return _drawn(evaluation_text(self.solution.document, self.judged))

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
        from solver.report.explained import explanation

        return _drawn(explanation(self.solution.document, self.changes))


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

    def jobs(self, out: str | Path, to: ExportTarget | None = None) -> list[str]:
        """Writes plans, a job for each and measured.csv, for `calibrate`; which have no job."""
        from solver.cli.files import write_folder
        from solver.evaluate.shortlist import jobs

        texts, refused = jobs(self.best.instance, self.chosen, to)
        write_folder(Path(out), texts)
        return refused


def load_plan(path: str | Path) -> Solution:
    """What a plan file holds; `verify` says whether to believe it."""
    from solver.document import PlanDocument

    return Solution(PlanDocument.read(Path(path)))


def solve(
    instance: "Problem",
    *,
    method: Method = "exact",
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
    from solver.plan_figures import build_document
    from solver.search.driver import solve_with_targets as search
    from solver.study.store import study_at

    problem = _problem(instance)
    options = SolveOptions(method, time_limit_s, gap, seed, workers)
    with study_at(None if study is None else Path(study), problem) as kept:
        result = search(problem, options, None, kept)
    document = build_document(result, options)
    return Solution(document, result.infeasibility, result.other_targets)


def sweep(
    instances: "Mapping[str, Problem]",
    *,
    method: Method = "exact",
    time_limit_s: float | None = None,
    gap: float = 0.0,
    seed: int = 0,
    workers: int = 1,
) -> Sweep:
    """The best plan of each of these instances, by name; the limit is for each of them."""
    best = partial(
        solve, method=method, time_limit_s=time_limit_s, gap=gap, seed=seed, workers=workers
    )
    return Sweep({name: best(instance) for name, instance in instances.items()})


def verify(
    plan: "Solution | Front | Fleet | Lengths | Switch | str | Path",
    instance: "Problem | None" = None,
    *,
    quick: bool = False,
    time_limit_s: float | None = None,
) -> "Verification":
    """What is wrong with a result or a file: `problems`, and whether it is proved: `complete`.

    With an instance, or an instance file, also whether it is for that one. quick: what an
    exhaustive search closed stays at its word; so does what is not proved within the time limit.
    """
    from formulations.instance.instance import Family
    from solver.cli.kinds import KINDS, differences
    from solver.files import read_one_of
    from solver.verify import Effort, verified

    document = plan.document if isinstance(plan, _Stored) else read_one_of([*KINDS], Path(plan))
    found = verified(document, Effort(time_limit_s, "quick" if quick else "all"))
    if instance is None:
        return found
    if isinstance(instance, Instance | str | Path | Mapping):
        family = _written(instance).family
    else:
        groups = instance.cluster.groups
        family = Family(instance=instance, fewest=tuple(group.nodes for group in groups))
    return replace(found, problems=(*found.problems, *differences(document, family)))


Plan = Solution | str | Path


def _checked(plan: Plan) -> "PlanDocument":
    """A plan, checked but for its proof. Raises PlanError if it was changed, or holds no plan."""
    from solver.cli.files import checked_plan, refuse_planless

    if not isinstance(plan, Solution):
        return checked_plan(Path(plan))
    refuse_planless(Path("the solution"), plan.document)
    return plan.document


def pareto(
    instance: Instance | str | Path | Fields,
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
    from solver.clusters.front import Wanted
    from solver.clusters.search import front_of
    from solver.study.store import study_at

    options = SolveOptions("exact", time_limit_s, gap, seed, workers)
    wanted = Wanted(subsets, budget_usd, deadline_s, sequences)
    problem = _written(instance)
    family, aim = wanted.family(problem.family, problem.family.instance.name)
    with study_at(None if study is None else Path(study), family.instance) as kept:
        return Front(front_of(family, aim, options, kept))


def evaluate(
    instance: "Problem",
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
    from solver.evaluate.run_plan import read_run

    problem = _problem(instance)
    flags = None if megatron is None else Path(megatron)
    run = read_run(problem, flags, None if torchtitan is None else Path(torchtitan), degrees, order)
    document, judged = predicted(run)
    if time_limit_s:
        options = SolveOptions(time_limit_s=time_limit_s, gap=gap, workers=workers)
        judged = compared(run, judged, options)
    return Evaluation(Solution(document), judged)


def explain(
    plan: Plan, *, time_limit_s: float = 60.0, gap: float = 0.001, workers: int = 1
) -> Explanation:
    """What limits a plan, and what changes of machines or strategies would save, each solved."""
    from solver.explain.what_ifs import answers

    document = _checked(plan)
    options = SolveOptions(time_limit_s=time_limit_s, gap=gap, workers=workers)
    changes = answers(document, options, lambda done, total: None)
    return Explanation(Solution(document), tuple(changes))


def shortlist(
    instance: "Problem",
    count: int = 5,
    *,
    time_limit_s: float = 60.0,
    gap: float = 0.001,
    seed: int = 0,
    workers: int = 1,
) -> Shortlist:
    """Which plans to measure, at most `count`: the prediction of a step has an error."""
    from solver.evaluate.shortlist import shortlist as choose

    options = SolveOptions("exact", time_limit_s, gap, seed, workers)
    return Shortlist(*choose(_problem(instance), count, options))


def diff(first: Plan, second: Plan) -> str:
    """Where two plans differ, as the command prints it: degrees, time, memory, money."""
    from solver.report.compared import difference

    return _drawn(difference(_checked(first), _checked(second), ("first", "second")))


def export(
    plan: Plan, to: ExportTarget, out: str | Path | None = None, *, own_model: bool = False
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
    other: "Plan | None" = None,
    trace: str | Path | None = None,
) -> None:
    """Writes one HTML page that needs no network; of a plan `other`, to show beside it, too.

    trace: of a plan, one step for Perfetto.
    """
    from solver.cli.files import check_writable, checked, write_text
    from solver.cli.kinds import KINDS, page_of, part_of

    names = [str(p) if isinstance(p, str | Path) else "plan.json" for p in (plan, other)]
    if isinstance(plan, str | Path):
        document = checked(Path(plan), *KINDS)
    else:
        document = _checked(plan) if isinstance(plan, Solution) else plan.document
    beside = None if other is None else (_checked(other), names[1])
    texts = {Path(out): page_of(document, names[0], beside)}
    if trace is not None:
        texts[Path(trace)] = part_of(document, "trace", "trace")
    check_writable(*texts)
    for path, text in texts.items():
        write_text(path, text)


def lengths(
    instance: "Problem",
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


def templates(
    instance: "Problem",
    *,
    faults: int = 1,
    distribution: Distribution = "step-time",
    sizes: Literal["fewest", "all"] | Sequence[int] = "all",
    split: Literal["aligned", "any"] = "aligned",
    micro_batch: int | None = None,
    micro_batches: int | None = None,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    study: str | Path | None = None,
) -> Templates:
    """The best pipeline of every size, so that `faults` failures leave training on all sizes."""
    from solver.fleets.designs import generator_for, sizes_of, templates_document
    from solver.fleets.fleet import start_fleet
    from solver.study.store import study_at
    from solver.templates.generate import TemplateOptions

    check_values(
        (split in ("aligned", "any"), "split", split, "aligned or any"),
        (
            distribution in ("step-time", "variance"),
            "distribution",
            distribution,
            "step-time or variance",
        ),
        (faults >= 0, "faults", faults, "at least 0"),
        (
            micro_batches in (None, *range(1, 10**4 + 1)),
            "micro_batches",
            micro_batches,
            "1 to 10^4",
        ),
        (0 <= gap < 1, "gap", gap, "at least 0 and below 1"),
    )
    asked = sizes if isinstance(sizes, str) else ",".join(map(str, sizes))
    problem = _problem(instance)
    options = TemplateOptions(NodeSplit(split), micro_batch, micro_batches, gap, time_limit_s)
    with study_at(None if study is None else Path(study), problem) as kept:
        generator = generator_for(problem, options, faults, study=kept)
        document = templates_document(generator, faults, sizes_of(asked))
    if not document.designs:
        return Templates(document, None)
    fleet = start_fleet(
        problem, document.designs, faults, distribution=distribution, claims=document.claims
    )
    return Templates(document, Fleet(fleet))


def recover(
    fleet: Fleet | str | Path,
    *,
    lost: Sequence[str] = (),
    joined: Sequence[str] = (),
    horizon_s: float = 3600.0,
    restart_s: float = 0.0,
    time_limit_s: float | None = None,
) -> Fleet:
    """The fleet that trains most within the horizon after nodes are lost or join, by name."""
    from solver.cli.files import checked
    from solver.fleet_document import FleetDocument
    from solver.fleets.fleet import next_fleet
    from solver.fleets.recovery import Horizon

    named = bool(lost or joined) and not isinstance(lost, str) and not isinstance(joined, str)
    check_values(
        (named, "lost, joined", (lost, joined), "lists of nodes, and some in one of them"),
        (0 < horizon_s <= 1e9, "horizon_s", horizon_s, "seconds"),
        (0 <= restart_s < horizon_s, "restart_s", restart_s, "at least 0, less than horizon_s"),
    )
    document = fleet.document if isinstance(fleet, Fleet) else checked(Path(fleet), FleetDocument)
    times_ns = (round(time_s * NANOSECONDS_PER_SECOND) for time_s in (horizon_s, restart_s))
    return Fleet(next_fleet(document, list(lost), list(joined), Horizon(*times_ns), time_limit_s))


def calibrate(instance: Instance | str | Path | Fields, measured: str | Path) -> Calibrated:
    """The instance with its layer times corrected by a CSV file of measured steps."""
    from solver.measure.corrected import calibrated

    problem = _written(instance)
    where = problem.name, problem.folder
    corrected, text = calibrated(problem.text, *where, Path(measured))
    return Calibrated(Instance.of_text(text, *where), corrected)


def catalogue(
    name: str | Path | None = None,
    *,
    sequence_length: int | None = None,
    global_batch: int | None = None,
) -> dict[str, Any]:
    """What `catalogue --json` prints: GPUs and workloads, or the figures of one workload.

    name: a workload of the catalogue, or the path of a Hugging Face config.json.
    """
    from solver.cli.setup import named_workload
    from solver.report.catalogue import catalogue_json, catalogued, workload_json

    stated = name is not None or (sequence_length, global_batch) == (None, None)
    check_values(
        (stated, "name", name, "a workload's, which sequence_length and global_batch are of"),
        (
            sequence_length is None or sequence_length > 0,
            "sequence_length",
            sequence_length,
            "tokens",
        ),
        (global_batch is None or global_batch > 0, "global_batch", global_batch, "sequences"),
    )
    if name is None:
        return catalogue_json(*catalogued())
    return workload_json(named_workload(str(name), sequence_length, global_batch))
