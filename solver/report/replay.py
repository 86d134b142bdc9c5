"""Replays side by side: tables for people, data, and throughput over time as a picture."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from rich.console import RenderableType

from solver.replay.player import CAUSES, Cause, Replay
from solver.replay.policy import Policy
from solver.report.chart import COLOURS, Axis, Chart, keys, picture, round_ticks, written
from solver.report.layout import Grid, Labelled
from solver.report.quantities import percent, significant

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
            "complete": replay.complete,
            "samples": replay.samples,
            "steps": replay.steps,
            "samples_per_s": replay.samples_per_s,
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


_WIDTH, _HEIGHT = 860, 340
_LEFT, _TOP = 72, 66
_PARTS = 240  # of the run, over each of which the throughput is averaged
_CURVE, _WIDER = 1.5, 1.5  # width of the last curve; what an earlier one has more, to be seen too
_STYLE = ".r{fill:none;stroke-linejoin:round}.n{fill:none;stroke:#999;stroke-dasharray:4 3}"


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
    end_ns = max(replay.length_ns for replay in replays.values())
    curves = {name: averages(replay, _PARTS, end_ns) for name, replay in replays.items()}
    times_ns = (end_ns * tenth // 10 for tenth in range(11))
    across = Axis(0, end_ns, [(ns, long_time_text(ns) if ns else "0") for ns in times_ns])
    ticks = round_ticks(max(1e-9, *map(max, curves.values())))
    up = Axis(0, ticks[-1], [(per_s, f"{per_s:g}") for per_s in ticks])
    chart = Chart(across, up, _LEFT, _TOP, _WIDTH, _HEIGHT)
    part = long_time_text(end_ns // _PARTS)
    parts = [*chart.grid(), *chart.names("time", f"samples/s, mean of every {part}")]
    named, x = keys(_LEFT + 220, 44, dict(zip(curves, COLOURS, strict=False)))
    parts += named
    for n, (values, colour) in enumerate(zip(curves.values(), COLOURS, strict=False)):
        stroke = _CURVE + _WIDER * (len(curves) - 1 - n)  # those drawn over it stay narrower
        points = [(end_ns * i / _PARTS, per_s) for i, per_s in enumerate(values)]
        style = f'class="r" stroke="{colour}" stroke-width="{stroke:g}"'
        parts.append(chart.steps(points, end_ns, style))
    # Over them, on a scale of its own, how many nodes are ready.
    most_nodes = max(span.nodes for replay in replays.values() for span in replay.spans)
    ready = [(span.start_ns, span.nodes) for span in next(iter(replays.values())).spans]
    of_nodes = replace(chart, up=Axis(0, max(1, most_nodes)))
    parts.append(f'<line x1="{x:.1f}" y1="49" x2="{x + 14:.1f}" y2="49" class="n"/>')
    parts.append(written(x + 20, 53, f"nodes ready, {most_nodes} at the top"))
    parts.append(of_nodes.steps(ready, end_ns, 'class="n"'))
    return picture(title, _LEFT + _WIDTH + 40, _TOP + _HEIGHT + 52, parts, _STYLE)
