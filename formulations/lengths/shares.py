"""How many rows each replica of a strategy runs for a set of length atoms."""

from formulations.lengths.problem import Measured, Mixed
from formulations.lengths.strategy_time import PARTS, StrategyTimes
from formulations.lengths.tour import Group
from formulations.units import ceil_div


def micro_batches(mixed: Mixed, group: Group, time_ns: int) -> tuple[int, ...]:
    """Rows of each replica where the group takes `time_ns`; () if that was measured.

    Of its share of the work, rounded up: rows that are full, or of padded ones as many of each
    length. Unlike replicas take what they can, one after the other, until all is taken.
    """
    strategy = mixed.strategies[group.strategy]
    if isinstance(strategy, Measured):
        return ()
    times = StrategyTimes(strategy, mixed.atoms, mixed.rows)
    content, dp = int(times.content[[*group.atoms]].sum()), len(strategy.replicas)
    if len(times.kinds) == 1:
        return (ceil_div(content, times.room[0] * dp),) * dp
    kinds = [kind for kind, _ in times.kinds]
    most, left, rows = times.parts(group.atoms, time_ns), PARTS, list[int]()
    for kind in map(kinds.index, strategy.replicas):
        share = min(left, most[kind])
        left -= share
        rows.append(ceil_div(share * content, PARTS * times.room[kind]))
    return tuple(rows)
