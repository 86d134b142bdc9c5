"""Replays side by side: tables for people, data, and throughput over time as a picture."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType

from solver.files import fields_of
from solver.replay.player import CAUSES, Cause, Replay
from solver.replay.policy import Policy
from solver.report.chart import COLOURS, picture
from solver.report.layout import Grid, Labelled
from solver.report.quantities import percent, significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_UNITS = ((86400e9, "d"), (3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"))


def long_time_text(time_ns: int) -> str:
    """A time with three significant digits, in days down to milliseconds."""
    size, unit = next((row for row in _UNITS if time_ns >= row[0]), _UNITS[-1])
    return f"{significant(time_ns / size, 3)} {unit}"


def replay_text(
    runs: Mapping[str, tuple[Policy, Replay]], plans: str | None
) -> list[RenderableType]:
    """Samples, throughput and time by cause of every policy; `plans`: a word on the step times."""
    replays = [replay for _, replay in runs.values()]

    def played(replay: Replay) -> str:
        ended = "all" if replay.complete else "time limit"
        return f"{long_time_text(replay.length_ns)}, {ended}"

    def spent(replay: Replay, cause: Cause) -> str:
        time_ns = replay.time_by_cause_ns[cause]
        return f"{long_time_text(time_ns)}, {percent(time_ns / replay.length_ns)}"

    figures: dict[str, Callable[[Replay], str]] = {
        "samples trained": lambda replay: f"{replay.samples:,}",
        "samples/s, whole run": lambda replay: significant(replay.samples_per_s),
        "samples/s between steps": lambda replay: significant(replay.samples_per_s_between_steps),
    }
    if not all(replay.complete for replay in replays):
        figures["played"] = played
    rows = [(name, *map(text, replays)) for name, text in figures.items()]
    for cause in CAUSES:
        if any(replay.time_by_cause_ns[cause] for replay in replays):
            texts = (spent(run, cause) if run.time_by_cause_ns[cause] else "0" for run in replays)
            rows.append((f"time {cause}", *texts))
    # Every source once, with the policies that rest on it
    users: dict[str, list[str]] = {}
    for name, (policy, _) in runs.items():
        for source in policy.sources:
            users.setdefault(source, []).append(name)
    lines = [
        ("run", long_time_text(max(replay.length_ns for replay in replays))),
        *((", ".join(names), source) for source, names in users.items()),
        *([("plans", plans)] if plans else []),
    ]
    return [Labelled(lines), "", Grid(("",), tuple(runs), rows)]


def replay_json(runs: Mapping[str, tuple[Policy, Replay]]) -> dict[str, object]:
    """The same as data; `spans` are [start, end, cause, ready nodes, steps kept], in s."""
    return {
        name: {
            **fields_of(replay, "complete", "samples", "steps", "samples_per_s"),
            "samples_per_s_between_steps": replay.samples_per_s_between_steps,
            "time_by_cause_s": {
                cause: time_ns / 1e9 for cause, time_ns in replay.time_by_cause_ns.items()
            },
            "sources": list(policy.sources),
            "spans": [
                [span.start_ns / 1e9, span.end_ns / 1e9, span.cause, span.nodes, span.steps]
                for span in replay.spans
            ],
        }
        for name, (policy, replay) in runs.items()
    }


_PARTS = 240  # of the run, over each of which the throughput is averaged
_CURVE, _WIDER = 1.5, 1.5  # width of the last curve; what an earlier one has more, to be seen too


def averages(replay: Replay, parts: int, end_ns: int | None = None) -> list[float]:
    """Samples/s kept in each of `parts` equal parts of the run; steps count where they ran.

    end_ns: of a run of which this may be only the beginning.
    """
    length_ns = (end_ns or replay.length_ns) / parts
    samples = [0.0] * parts
    for span in replay.spans:
        if not span.steps:
            continue
        per_ns = span.steps * replay.samples_per_step / (span.end_ns - span.start_ns)
        first, last = int(span.start_ns / length_ns), int(span.end_ns / length_ns)
        for i in range(first, min(last, parts - 1) + 1):
            begin, end = max(span.start_ns, i * length_ns), min(span.end_ns, (i + 1) * length_ns)
            samples[i] += max(0.0, end - begin) * per_ns
    return [count / length_ns * 1e9 for count in samples]


def replay_picture(title: str, replays: Mapping[str, Replay]) -> str:
    """Throughput over the time of one to four replays of one trace, by name, as SVG."""
    return picture(title, lambda axes: draw_replays(axes, replays))


def draw_replays(axes: "Axes", replays: Mapping[str, Replay]) -> None:
    """The same on axes of matplotlib, of a figure with constrained layout."""
    from matplotlib.ticker import MaxNLocator

    end_ns = max(replay.length_ns for replay in replays.values())
    starts = [end_ns * i / _PARTS for i in range(_PARTS + 1)]
    for n, (name, replay) in enumerate(replays.items()):
        values = averages(replay, _PARTS, end_ns)
        width = _CURVE + _WIDER * (len(replays) - 1 - n)  # those over it stay narrower
        axes.step(starts, [*values, values[-1]], where="post", label=name, linewidth=width)
    tenths = [end_ns * tenth // 10 for tenth in range(11)]
    axes.set_xticks(tenths, [long_time_text(ns) if ns else "0" for ns in tenths])
    axes.set_ylabel(f"samples/s, mean of every {long_time_text(end_ns // _PARTS)}")
    axes.set(xlim=(0, end_ns), ylim=(0, None), xlabel="time")
    # Over them, on a scale of its own, how many nodes are ready
    spans = next(iter(replays.values())).spans
    ready, grey = axes.twinx(), COLOURS[-1]
    times, nodes = zip(*((span.start_ns, span.nodes) for span in spans), strict=True)
    until = (*times, spans[-1].end_ns), (*nodes, nodes[-1])
    ready.step(*until, "--", where="post", color=grey, linewidth=1, label="nodes ready")
    ready.set(ylim=(0, max(1, *nodes)), ylabel="nodes ready")
    ready.yaxis.set_major_locator(MaxNLocator(integer=True))
    ready.grid(visible=False)
    axes.figure.legend(loc="outside upper right", ncols=len(replays) + 1)
