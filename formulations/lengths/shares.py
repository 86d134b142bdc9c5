"""How many rows each replica of a strategy runs for a set of length atoms."""

from collections.abc import Iterator, Sequence

from formulations.lengths.problem import Atom, Measured, Mixed, Replica, Strategy
from formulations.lengths.strategy_time import PARTS
from formulations.lengths.tour import Group
from formulations.units import ceil_div


def micro_batches(mixed: Mixed, group: Group, time_ns: int) -> tuple[int, ...]:
    """Rows of each replica, at most, where the group takes `time_ns`; () if that was measured."""
    strategy = mixed.strategies[group.strategy]
    if isinstance(strategy, Measured):
        return ()
    atoms, dp = [mixed.atoms[k] for k in group.atoms], len(strategy.replicas)
    tokens = sum(atom.tokens * atom.count for atom in atoms)
    number = sum(atom.count for atom in atoms)
    padded = mixed.rows == "padded"
    if len(set(strategy.replicas)) == 1:
        longest_row = strategy.replicas[0].longest_row
        return (ceil_div(number, dp) if padded else ceil_div(tokens, longest_row * dp),) * dp
    rows = []
    for replica, share in zip(
        strategy.replicas,
        _shares(strategy, atoms, padded, time_ns - strategy.visit_ns),
        strict=True,
    ):
        whole = PARTS * replica.longest_row
        rows.append(share if padded else ceil_div(share * tokens, whole))
    return tuple(rows)


def _shares(strategy: Strategy, atoms: Sequence[Atom], padded: bool, time_ns: int) -> Iterator[int]:
    """What unlike replicas take, one after the other until all is taken: rows, or PARTS."""
    left = sum(atom.count for atom in atoms) if padded else PARTS
    for replica in strategy.replicas:
        share = min(left, _most(replica, atoms, padded, time_ns))
        left -= share
        yield share


def _most(replica: Replica, atoms: Sequence[Atom], padded: bool, time_ns: int) -> int:
    """What a replica does within the time."""
    each = [replica.time.sequence_ns(atom.tokens) for atom in atoms]
    fitting = [1 if padded else replica.longest_row // atom.tokens for atom in atoms]
    row_ns = replica.time.per_row_ns + max(n * ns for n, ns in zip(fitting, each, strict=True))
    if padded:
        return max(0, time_ns // max(row_ns, 1) - replica.stages + 1)
    tokens = sum(atom.tokens * atom.count for atom in atoms)
    whole_ns = sum(atom.count * ns for atom, ns in zip(atoms, each, strict=True))
    whole_ns += replica.time.per_row_ns * ceil_div(tokens, replica.longest_row)
    left_ns = time_ns - (replica.stages - 1) * row_ns
    return max(0, min(PARTS, left_ns * PARTS // max(whole_ns, 1)))
