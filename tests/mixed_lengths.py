"""Random problems of mixed lengths, and what they cost by every step there is."""

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, permutations, product
from math import ceil
from pathlib import Path

from formulations.instance import Instance
from formulations.instance.lengths import Rows
from formulations.instance.load import parse_instance
from formulations.lengths.problem import Atom, Mixed, Replica, RowTime, Strategy, Switching
from formulations.lengths.tour import Group, Tour
from tests.conftest import text_of


def random_replica(rng: random.Random, unit: int = 1) -> Replica:
    """A pipeline that takes at least 16 tokens; times in units of so many ns."""
    time = RowTime(unit * rng.random(), unit * 5 * rng.random(), unit * rng.randrange(100))
    return Replica(rng.choice([1, 2, 4]), rng.choice([16, 24, 64]), time)


def random_mixed(seed: int, num_atoms: int = 4, rows: Rows = "packed") -> Mixed:
    """Some strategies of unlike replicas, some measured, some switches missing.

    Times of ns for even seeds, of ms for odd ones.
    """
    rng, once = random.Random(seed), random.Random(f"once {seed}")
    unit = 10**6 if seed % 2 else 1
    tokens = sorted(rng.sample(range(1, 33), num_atoms))
    atoms = tuple(Atom(length, rng.randrange(1, 20)) for length in tokens)
    strategies: list[Strategy] = []
    for number in range(3):
        name, kind = f"strategy {number}", rng.random()
        ends = unit * once.choice([0, 40, 400]), unit * once.choice([0, 40, 400])
        replicas = (random_replica(rng, unit),) * rng.randrange(1, 4)
        if kind < 0.2:
            cells = (None if rng.random() < 0.2 else unit * rng.randrange(3000) for _ in atoms)
            strategies.append(Strategy(name, (), *ends, tuple(cells)))
        elif kind < 0.4:
            strategies.append(Strategy(name, (*replicas, random_replica(rng, unit)), *ends))
        else:
            strategies.append(Strategy(name, replicas, *ends))
    strategies.append(
        Strategy("all", (Replica(1, 64, RowTime(2.0 * unit, 10.0 * unit, 50 * unit)),))
    )
    most = rng.choice([50, 500, 2000])
    tables = [
        tuple(
            tuple(None if rng.random() < 0.05 else unit * rng.randrange(most) for _ in strategies)
            for _ in strategies
        )
        for _ in range(2)
    ]
    switching = Switching(tables[0], tables[1], parameters_return=rng.random() < 0.3)
    if rows == "padded":
        strategies = [_padded(one, tokens) if once.random() < 0.7 else one for one in strategies]
    return Mixed(atoms, tuple(strategies), switching, rows)


def with_free_sequences(mixed: Mixed, seed: int) -> Mixed:
    """The same where sequences, rows or both take no time on some replicas."""
    rng = random.Random(seed)

    def freed(replica: Replica) -> Replica:
        old, chance = replica.time, rng.random()
        if old.rows_ns:
            return replace(replica, time=RowTime(rows_ns=tuple((n, 0) for n, _ in old.rows_ns)))
        row_ns = 0 if chance < 0.4 else old.per_row_ns
        return replace(replica, time=RowTime(0.0, 0.0, row_ns))

    strategies: list[Strategy] = []
    for old in mixed.strategies:
        if old.replicas and rng.random() < 0.7:
            times = {kind: freed(kind) if rng.random() < 0.7 else kind for kind in old.replicas}
            old = replace(old, replicas=tuple(times[kind] for kind in old.replicas))
        strategies.append(old)
    return replace(mixed, strategies=tuple(strategies))


def _padded(strategy: Strategy, tokens: Sequence[int]) -> Strategy:
    """With times of rows instead of curves, none of them below some time of the host."""
    if strategy.atoms_ns:
        return strategy
    replicas = []
    for one in strategy.replicas:
        fitting = tokens[: max(1, bisect_right(tokens, one.longest_row))]
        times = [max(150, one.time.sequence_ns(n) + one.time.per_row_ns) for n in fitting]
        time = RowTime(rows_ns=tuple(zip(fitting, times, strict=True)))
        replicas.append(replace(one, time=time))
    return replace(strategy, replicas=tuple(replicas))


def set_ns(mixed: Mixed, strategy: int, atoms: Sequence[int]) -> int | None:
    """Time of a strategy for a set of atoms and of the visit, by definition, in fractions."""
    own = mixed.strategies[strategy]
    if own.atoms_ns:
        cells = [own.atoms_ns[k] for k in atoms]
        return None if None in cells else own.visit_ns + sum(ns or 0 for ns in cells)
    return _rows_ns(own, tuple(mixed.atoms[k] for k in atoms), mixed.rows == "padded")


@cache
def _rows_ns(own: Strategy, chosen: tuple[Atom, ...], padded: bool) -> int | None:
    if max(atom.tokens for atom in chosen) > own.longest:
        return None

    # Of every length each replica runs as much as it is quicker with; the longest ones undivided
    dp, work, apart = len(own.pipelines), 0, 0
    beside, filled = [0] * dp, [0] * dp
    for atom in chosen:
        times = [r.time.sequence_ns(atom.tokens) for r in own.pipelines]
        each = [ns + padded * r.time.per_row_ns for ns, r in zip(times, own.pipelines, strict=True)]
        number = sum(a.count for a in chosen if a.tokens >= atom.tokens)
        apart = max(apart, -(-number // dp) * min(each))
        speed = sum(Fraction(1, ns) for ns in each) if min(each) else Fraction(0)
        work += ceil(dp * atom.count / speed) if speed else 0
        for r, (replica, ns) in enumerate(zip(own.pipelines, each, strict=True)):
            share = 1 / (ns * speed) if speed else Fraction(1, dp)
            filled[r] += ceil(dp * share * atom.count * atom.tokens)
            row = (
                ns if padded else replica.longest_row // atom.tokens * ns + replica.time.per_row_ns
            )
            beside[r] = max(beside[r], (replica.stages - 1) * row)
    for r, replica in enumerate(own.pipelines):
        num_rows = ceil(Fraction(filled[r], dp * replica.longest_row))
        beside[r] += 0 if padded else replica.time.per_row_ns * num_rows
    return own.visit_ns + max(-(-work // dp), apart) + max(beside)


def tour_ns(mixed: Mixed, tour: Tour) -> int | None:
    switching = mixed.switching
    parts = [set_ns(mixed, group.strategy, group.atoms) for group in tour.groups]
    parts.append(mixed.strategies[tour.anchor].anchor_ns)
    visited = [group.strategy for group in tour.groups]
    if visited[0] != tour.anchor:
        parts.append(switching.parameters_ns[tour.anchor][visited[0]])
    path = [*visited] if visited[-1] == tour.anchor else [*visited, tour.anchor]
    for n, (a, b) in enumerate(pairwise(path), 2):
        parts.append(switching.gradients_ns[a][b])
        if n < len(path) or switching.parameters_return:
            parts.append(switching.parameters_ns[a][b])
    return None if None in parts else sum(ns for ns in parts if ns is not None)


def ascending_tours(mixed: Mixed) -> Iterator[Tour]:
    """Every way to cut the lengths, every strategy for every bucket, every anchor."""
    size, strategies = len(mixed.atoms), range(len(mixed.strategies))
    for count in range(size):
        for cuts in combinations(range(1, size), count):
            buckets = [tuple(range(a, b)) for a, b in pairwise((0, *cuts, size))]
            for chosen in product(strategies, repeat=len(buckets)):
                if all(a != b for a, b in pairwise(chosen)):
                    groups = tuple(map(Group, chosen, buckets))
                    yield from (Tour(anchor, groups) for anchor in strategies)


def free_tours(mixed: Mixed) -> Iterator[Tour]:
    """Every strategy for every atom, every order of those used, every anchor."""
    strategies = range(len(mixed.strategies))
    for chosen in product(strategies, repeat=len(mixed.atoms)):
        sets = {q: tuple(k for k, own in enumerate(chosen) if own == q) for q in chosen}
        for order in permutations(sets):
            groups = tuple(Group(q, sets[q]) for q in order)
            yield from (Tour(anchor, groups) for anchor in strategies)


def least_ns(mixed: Mixed, tours: Iterator[Tour]) -> int | None:
    """The least time of steps; None if none of them is possible."""
    known = (tour_ns(mixed, tour) for tour in tours)
    return min((ns for ns in known if ns is not None), default=None)


SMALL = text_of("spaces/lengths.yaml")
OTHER_NODE = "    - {name: b, gpu: A10, gpus_per_node: 4, nodes: 1, inter_node: EFA 4x100G}\nsearch"
#: Few strategies of both nodes.
MIXED = {"search: {": f"{OTHER_NODE}: {{tensor_parallel: [1, 2], "}


def replaced(text: str, changes: Mapping[str, str]) -> Instance:
    """The instance of a text in which others are replaced."""
    for old, new in changes.items():
        text = text.replace(old, new)
    return parse_instance(text, "x.yaml", Path())


def small(**changes: str) -> Instance:
    """The small instance, with texts replaced."""
    return replaced(SMALL, changes)
