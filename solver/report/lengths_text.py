"""Steps of mixed sequence lengths in words and tables. Returns what Rich can render."""

from collections.abc import Sequence
from itertools import zip_longest

from rich.console import RenderableType

from formulations.instance import Instance
from formulations.instance.rows import lengths_of
from formulations.lengths.problem import Measured, Mixed, Strategy
from formulations.units import seconds
from solver.lengths.judge import Judgement, Way
from solver.lengths_document import GroupDocument, HopDocument, LengthsDocument
from solver.report.layout import Grid, Lines, labelled, table
from solver.report.quantities import percent, ranges, time_text

#: Rows of so many tokens are shown.
SHOWN = (1024, 4096, 32768)
#: What a switch moves.
_MOVES = {
    "parameters": "parameters",
    "gradients": "gradients",
    "both": "parameters and gradients",
}
_WAYS: dict[Way, str] = {
    "plan": "this plan",
    "single": "best single strategy",
    "fastest": "fastest for every range",
    "clairvoyant": "chosen for the very step",
}


def strategies_text(
    instance: Instance, mixed: Mixed, above: Sequence[float], measured: bool
) -> list[RenderableType]:
    """What a step holds, then a table of the strategies for it."""
    workload, lengths = instance.workload, lengths_of(instance)
    tokens = sum(atom.tokens * atom.count for atom in mixed.atoms)
    sequences = sum(atom.count for atom in mixed.atoms)
    below = sum(atom.count for atom in mixed.atoms if atom.tokens <= SHOWN[0])
    lines = [
        ("workload", f"{workload.name}: {workload.parameters / 1e6:,.1f} million parameters"),
        (
            "lengths",
            f"{sequences:,} sequences per step in {len(mixed.atoms)} classes, of up to"
            f" {lengths.longest} tokens, {below / sequences:.0%} of up to {SHOWN[0]};"
            f" {tokens:,} tokens with all rounded up; {lengths.source}",
        ),
        (
            "rows",
            f"{mixed.rows}; times {'as measured' if measured else 'by the model of cost'},"
            f" a l^2 + b l + c at most {percent(max(above))} above",
        ),
    ]
    return [labelled(lines), "", _strategy_table(mixed)]


def _strategy_table(mixed: Mixed) -> Grid:
    numbers = ["replicas", "stages", "longest row", *(f"{n // 1024}k ms" for n in SHOWN)]
    return table(["strategy"], numbers, [_strategy_row(one) for one in mixed.strategies])


def _strategy_row(strategy: Strategy | Measured) -> list[str]:
    """Times are those of the slowest replica's slowest stage, of rows that are one sequence."""
    if isinstance(strategy, Measured):
        return [strategy.name, *["-"] * (3 + len(SHOWN))]
    own = strategy.replicas
    return [
        strategy.name,
        str(len(own)),
        str(max(replica.stages for replica in own)),
        str(strategy.longest),
        *(_row_time(strategy, n) if n <= strategy.longest else "-" for n in SHOWN),
    ]


def _row_time(strategy: Strategy, tokens: int) -> str:
    times = [one.time.sequence_ns(tokens) + one.time.per_row_ns for one in strategy.replicas]
    return f"{seconds(max(times)) * 1e3:,.1f}"


def lengths_text(document: LengthsDocument) -> list[RenderableType]:
    """The step group by group, then its figures."""
    return [_step_table(document), "", labelled(_step_lines(document))]


def _step_table(document: LengthsDocument) -> Grid:
    """Groups in their order, and what moves before and after them."""
    rows: list[list[str]] = []
    hops = list(document.switches)
    first = bool(hops) and hops[0].leaves == document.anchor
    if first and hops[0].enters == document.groups[0].strategy:
        rows.append(_hop_row(document, hops.pop(0)))
    for group, hop in zip_longest(document.groups, hops):
        rows += [_group_row(document, group)] if group is not None else []
        rows += [_hop_row(document, hop)] if hop is not None else []
    numbers = ["sequences", "tokens", "rows per replica", "time"]
    return table(["strategy", "lengths"], numbers, rows)


def _group_row(document: LengthsDocument, group: GroupDocument) -> list[str]:
    lengths = ", ".join(f"{above + 1}-{up_to}" for above, up_to in group.buckets)
    name = document.problem.strategies[group.strategy].name
    counts = sorted(set(group.micro_batches))
    return [
        name,
        lengths,
        f"{group.sequences:,}",
        f"{group.tokens:,}",
        ranges(counts) if counts else "-",
        time_text(group.time_s, document.step_time_s),
    ]


def _hop_row(document: LengthsDocument, hop: HopDocument) -> list[str]:
    time = time_text(hop.time_s, document.step_time_s)
    return [f"  moves {_MOVES[hop.moves]}", "", "", "", "", time]


def _step_lines(document: LengthsDocument) -> Lines:
    step_s, names = document.step_time_s, [one.name for one in document.problem.strategies]
    moving_s = sum(hop.time_s for hop in document.switches)
    order = "ascending lengths" if document.order == "ascending" else "any order"
    return [
        ("step time", f"{time_text(step_s)}, of which switches {percent(moving_s / step_s)}"),
        ("holds state", f"{names[document.anchor]}: the step starts and ends there"),
        ("single", _single(document)),
        (
            "status",
            f"{document.status} of these strategies in {order}: gap {percent(document.gap)},"
            f" lower bound {time_text(document.lower_bound_s)}",
        ),
    ]


def _single(document: LengthsDocument) -> str:
    """The best strategy without a switch, beside the step."""
    single = document.single
    if single is None:
        return "no strategy runs all lengths"
    name = document.problem.strategies[single.strategy].name
    gain = single.step_time_s / document.step_time_s - 1
    return f"{name} alone takes {time_text(single.step_time_s)}, {percent(gain)} more"


def judged_text(judgement: Judgement) -> list[RenderableType]:
    """Times of steps that were drawn, by every way to choose."""
    slowest = max(judgement.percentile_95_ns(way) for way in judgement.times_ns) / 1e9
    rows = [
        [
            _WAYS[way],
            time_text(judgement.mean_ns(way) / 1e9, slowest),
            time_text(judgement.percentile_95_ns(way) / 1e9, slowest),
        ]
        for way in judgement.times_ns
    ]
    number = max(len(times) for times in judgement.times_ns.values())
    return ["", table([f"{number} drawn steps"], ["mean", "95 % are below"], rows)]
