"""Replays side by side, as tables for people and as data."""

from collections.abc import Mapping

from rich.console import RenderableType

from solver.replay.policy import Policy
from solver.replay.spans import CAUSES, Replay
from solver.report.layout import Lines, labelled, table
from solver.report.quantities import percent, significant

_UNITS = ((86400e9, "d"), (3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"))


def long_time_text(time_ns: int) -> str:
    """A time with three significant digits, in days down to milliseconds."""
    size, unit = next((row for row in _UNITS if time_ns >= row[0]), _UNITS[-1])
    return f"{significant(time_ns / size, 3)} {unit}"


def _sources(runs: Mapping[str, tuple[Policy, Replay]]) -> Lines:
    """Every source once, with the policies that rest on it."""
    users: dict[str, list[str]] = {}
    for name, (policy, _) in runs.items():
        for source in policy.sources:
            users.setdefault(source, []).append(name)
    return [(", ".join(names), source) for source, names in users.items()]


def replay_text(
    runs: Mapping[str, tuple[Policy, Replay]], plans: str | None
) -> list[RenderableType]:
    """One column per policy: samples, mean throughput, and the time by cause.

    plans: what is to be said of the plans behind the step times.
    """
    replays = [replay for _, replay in runs.values()]
    rows = [
        ("samples trained", *(f"{one.samples:,}" for one in replays)),
        ("samples/s, whole run", *(significant(one.samples_per_s) for one in replays)),
        (
            "samples/s between steps",
            *(significant(one.samples_per_s_between_steps) for one in replays),
        ),
    ]
    length_ns = max(one.length_ns for one in replays)
    if not all(one.complete for one in replays):
        rows.append(
            (
                "played",
                *(
                    f"{long_time_text(one.length_ns)}, {'all' if one.complete else 'time limit'}"
                    for one in replays
                ),
            )
        )
    for cause in CAUSES:
        times = [one.time_by_cause_ns[cause] for one in replays]
        if any(times):
            shares = (
                f"{long_time_text(t)}, {percent(t / one.length_ns)}" if t else "0"
                for one, t in zip(replays, times, strict=True)
            )
            rows.append((f"time {cause}", *shares))
    lines: Lines = [("run", long_time_text(length_ns)), *_sources(runs)]
    lines += [("plans", plans)] if plans else []
    return [labelled(lines), "", table(("",), tuple(runs), rows)]


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
