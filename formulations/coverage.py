"""Which numbers of nodes are sums of template sizes: the coin problem behind fault tolerance.

A cluster of N nodes runs x >= f + 1 pipelines, so that f failures leave one whole, and every
pipeline has as many nodes as some template. N is *covered* by a set of sizes if it is such a sum.
Jang et al., Oobleck, SOSP 2023, section 4.1, take consecutive sizes n0, n0 + 1, ...; here any set
may be asked about. n0 is the least number of nodes that hold the model.

A pipeline of s nodes that loses one becomes a pipeline of s - 1 if that is a size. Otherwise other
pipelines join in: together with the s - 1 nodes left their nodes are put into pipelines anew. With
sizes n0 .. 2 n0 - 1 one other is enough (section 5.2: one that has a node to lend, or one of n0 to
merge with). Fewer sizes can mean that more pipelines join: `worst_rebuilt`, for any set of sizes.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations, groupby

from formulations.units import ceil_div


def least_consecutive(least_size: int, faults: int) -> int:
    """Least p for which sizes n0..n0+p-1 cover every N >= (f+1) n0; fewer leave a gap.

    Proof. x pipelines hold exactly the numbers x n0 .. x (n0 + p - 1): start with x of size n0 and
    enlarge one by one node at a time. So all N >= (f+1) n0 are covered iff no gap opens between x
    and x + 1 pipelines, x (n0 + p - 1) + 1 >= (x + 1) n0, for any x >= f + 1. That is
    x (p - 1) >= n0 - 1; it is hardest at x = f + 1, and there says p >= 1 + ceil((n0-1)/(f+1)).
    """
    return 1 + ceil_div(least_size - 1, faults + 1)


def consecutive_for_merging(least_size: int, faults: int) -> tuple[int, ...]:
    """Oobleck's sizes: consecutive from n0 on, enough to cover every count and to merge.

    Proof that n0 of them are, and no fewer. A pipeline that cannot go on has at most n0 - 1 nodes
    left; with one of n0 nodes that makes up to 2 n0 - 1, and every smaller sum from n0 on is a size
    too. And n0 is no less than `least_consecutive`, whatever the faults.
    """
    assert least_consecutive(least_size, faults) <= least_size
    return tuple(range(least_size, 2 * least_size))


class Coverage:
    """Sums of at least `faults` + 1 sizes, up to `most_nodes`; exact, by dynamic programming."""

    def __init__(self, sizes: Iterable[int], faults: int, most_nodes: int) -> None:
        """`sizes` >= 1, not none of them; `faults` >= 0. Raises ValueError otherwise."""
        self.sizes = tuple(sorted(set(sizes)))
        self.faults = faults
        self.most_nodes = most_nodes
        if not self.sizes or self.sizes[0] < 1 or faults < 0:
            raise ValueError(f"template sizes {self.sizes} and {faults} faults")

    @cached_property
    def _counts(self) -> list[int]:
        """Bit x of entry N: N is a sum of x sizes. O(N |sizes|) steps on N-bit integers."""
        counts = [1]
        for nodes in range(1, self.most_nodes + 1):
            reached = 0
            for size in self.sizes:
                if size > nodes:
                    break
                reached |= counts[nodes - size] << 1
            counts.append(reached)
        return counts

    def pipelines(self, nodes: int) -> tuple[int, ...]:
        """Numbers of pipelines, f + 1 or more, that use exactly `nodes` nodes; ascending."""
        counts = self._counts[nodes] >> (self.faults + 1)
        return tuple(x + self.faults + 1 for x in range(counts.bit_length()) if counts >> x & 1)

    def makes(self, nodes: int, pipelines: int) -> bool:
        """Whether `nodes` is a sum of at least `pipelines` sizes; 0 is the sum of none."""
        return self._counts[nodes] >> max(pipelines, 0) > 0


#: Sets that are tried for the fewest sizes: some seconds, with n0 = 50 nodes and one fault.
MOST_TRIED = 10**6


def fewest_sizes(least_size: int, faults: int, most_nodes: int) -> tuple[tuple[int, ...], bool]:
    """Fewest sizes >= n0 of which f + 1 or more add up to every number from (f + 1) n0 on.

    Of numbers up to `most_nodes`, no less than (f + 1) n0. Ascending, and whether there are no
    fewer: where that takes more than MOST_TRIED sets, the consecutive sizes.

    The first n0 numbers settle all: only n0 makes the first, so n0 is in every set, and one more
    pipeline of n0 leads from each of these numbers to all above. Each is a sum of f + 1 sizes. So
    what these have beyond n0 are stamps, of which up to f + 1 make every value below n0: the
    postage stamp problem (Lunnon, Comput. J. 12(4):377, 1969). By ascending stamps: the next one is
    no larger than the least value that is not made yet, which no larger ones make.
    """
    values = min(least_size, most_nodes - (faults + 1) * least_size + 1)
    tries_left = iter(range(MOST_TRIED, 0, -1))

    def completed(stamps: tuple[int, ...], made: list[int], more: int) -> tuple[int, ...] | None:
        """With so many stamps more; made: [f + 2] bits of the values of up to 0, 1, .. of them."""
        missing = (~made[-1] & (made[-1] + 1)).bit_length() - 1
        if missing >= values:
            return stamps
        if not more or not next(tries_left, 0):
            return None
        for stamp in range(missing, stamps[-1], -1):
            with_it = [1]
            for without in made[1:]:  # or the stamp once more, beside one stamp fewer
                with_it.append(without | with_it[-1] << stamp)
            if (complete := completed((*stamps, stamp), with_it, more - 1)) is not None:
                return complete
        return None

    consecutive = range(least_size, least_size + least_consecutive(values, faults))
    for more in range(len(consecutive)) if faults else ():  # else every value is a stamp
        if (stamps := completed((0,), [1] * (faults + 2), more)) is not None:
            return tuple(least_size + stamp for stamp in stamps), True
    return tuple(consecutive), not faults


def proof(sizes: Sequence[int], faults: int) -> tuple[str, ...]:
    """Why all numbers of nodes are sums of sizes that cover them; one argument a line."""
    low, high, first = min(sizes), max(sizes), faults + 1
    if high == 1:
        return (
            "Every node is a pipeline, so every number of nodes from "
            f"{first} on is covered, by as many pipelines.",
        )
    needed = least_consecutive(low, faults)
    if [*sizes] != [*range(low, high + 1)] or len(sizes) < needed:
        return (f"By how many pipelines of {first} or more, by dynamic programming over all sums:",)
    return (
        f"x pipelines of {low} to {high} nodes hold every number from {low}x to {high}x: start "
        f"with {low} each and enlarge one by one node at a time. So N nodes are ceil(N / {high}) "
        f"to floor(N / {low}) pipelines, where that is {first} or more.",
        f"Between x and x + 1 pipelines no number is left out while {high}x + 1 >= {low}(x + 1)"
        f": at x = {first}, {high * first + 1} >= {low * (first + 1)}, and so for every x >= "
        f"{first}. Hence every number of nodes from {first * low} on is covered, and no lower "
        f"one is: {first} pipelines need {first * low}.",
        f"{needed} consecutive sizes from {low} on are needed for that: "
        f"1 + ceil(({low} - 1) / {first}).",
    )


def ways(sizes: Sequence[int], faults: int, nodes: range) -> tuple[str, ...]:
    """By how many pipelines the numbers in `nodes` are covered, or that they are not.

    `nodes`: not empty, step 1. Runs of numbers with equal answers go together: "6-7: 3 pipelines".
    """
    coverage = Coverage(sizes, faults, nodes[-1])
    lines = list[str]()
    for counts, run in groupby(nodes, coverage.pipelines):
        first, *rest = run
        if not counts:
            answer = "not covered"
        elif len(counts) == 1:
            answer = f"{counts[0]} pipeline" + "s" * (counts[0] > 1)
        elif counts[-1] - counts[0] + 1 == len(counts):
            answer = f"{counts[0]} to {counts[-1]} pipelines"
        else:
            answer = f"{', '.join(map(str, counts))} pipelines"
        lines.append(f"{first}-{rest[-1]}: {answer}" if rest else f"{first}: {answer}")
    return tuple(lines)


def divided(total: int, places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to take so many of these places, by how many of each, in lexicographic order."""
    if not places:
        yield from [()] if total == 0 else []
        return
    for count in range(max(0, total - sum(places[1:])), min(total, places[0]) + 1):
        yield from ((count, *rest) for rest in divided(total - count, places[1:]))


def partitions(sizes: Sequence[int], nodes: int) -> Iterator[tuple[int, ...]]:
    """Every multiset of `sizes`, ascending and distinct, that sums to `nodes`; parts descending."""
    if not nodes:
        yield ()
    for index, size in enumerate(sizes):
        if size <= nodes:
            for rest in partitions(sizes[: index + 1], nodes - size):
                yield (size, *rest)


def pipelines_rebuilt(coverage: Coverage, partition: Sequence[int], failed: int) -> int | None:
    """Fewest pipelines to put together anew when one of `failed` nodes loses a node.

    `coverage`: that with the f + 1 pipelines that must be left, up to the sum of `partition`. The
    failed pipeline counts too. None if the nodes left are not covered: one of them stays idle.
    """
    others = list(partition)
    others.remove(failed)
    for joining in range(len(others) + 1):
        needed = coverage.faults + 1 - (len(others) - joining)
        for joined in set(combinations(sorted(others), joining)):
            if coverage.makes(failed - 1 + sum(joined), needed):
                return joining + 1
    return None


def worst_rebuilt(sizes: Sequence[int], faults: int, nodes: range) -> int | None:
    """Most pipelines that one failure takes apart, over all ways to run on any of these numbers.

    `nodes`: covered numbers. None without any, or if there is a way to run and a failure after
    which no way uses all nodes left.
    """
    coverage = Coverage(sizes, faults, max(nodes, default=0))
    rebuilt = [
        pipelines_rebuilt(coverage, partition, failed)
        for number in nodes
        for partition in partitions(coverage.sizes, number)
        if len(partition) > faults
        for failed in set(partition)
    ]
    counts = [count for count in rebuilt if count is not None]
    return max(counts) if counts and len(counts) == len(rebuilt) else None
