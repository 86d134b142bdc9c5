"""The packing bound of a shape: stages that hold whole blocks cannot hold all of them in time.

Proof. The notation is that of `filling`. Suppose a plan of step time T. In any replica with m
micro-batches or more, every stage i meets T >= once + latency + c_i t_i + tail_0.

Set some of the fastest groups apart. Some replica has at most f of its stages on them, their slots
over dp rounded down. Look at it; or, where micro-batches may be unlike, at the replica with the
most, and f is the most that any has there. Without a stage there, only the other groups count. A
block takes at least `fast` ns on the groups set apart, `slow` on the others; by how long c_i t_i
can be, stage i holds a whole number of blocks at most, beside the other layers that are surely on
the first and the last stage, and no more than leave the other stages theirs.

Latency and tail_0 in turn depend on the blocks. (a) No more blocks are on the fast groups than f
stages hold there at most; all others add `slow` to the latency, and the layers but blocks their
least. (b) The first stage holds at least the blocks that the others cannot, which add to tail_0.
So from what is known of the blocks follows what is known of T, and from that again the blocks,
until nothing changes. If the stages then cannot hold all blocks, at most f of them fast ones, or a
stage cannot hold what it must, there is no such plan. Fractions and whole numbers throughout.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor

from solver.verify.chain import Chain


@dataclass(frozen=True)
class _Kind:
    """Some node groups: least ns of a block, and of other layers on the first and last stage."""

    block: int
    first: int
    last: int


class PackingBound:
    """Blocks of one shape."""

    def __init__(self, chain: Chain) -> None:
        self.chain, self.shape = chain, chain.shape
        self.blocks = [x for x, is_block in enumerate(chain.is_block) if is_block]
        self.others = [x for x, is_block in enumerate(chain.is_block) if not is_block]
        free = chain.prover.instance.search.embedding_only_stages
        self.fewest = 0 if free else 1

    @cached_property
    def most(self) -> int:
        """Blocks that one stage can hold if every other has what it must."""
        return len(self.blocks) - self.fewest * (self.shape.pp - 1)

    def refutes(self, below_ns: int) -> bool:
        """True only if no plan of the shape has a step time below this."""
        if not self.blocks:
            return False
        order = self.chain.fastest_first
        return any(
            self._refuted(order[:size], order[size:], below_ns - 1)
            for size in range(min(1, len(order) - 1), len(order))
        )

    def _kind(self, groups: list[int]) -> _Kind | None:
        if not groups:
            return None
        least = [
            min(self.chain.work[j][x] for j in groups) for x in range(len(self.chain.is_block))
        ]
        return _Kind(
            block=min(least[x] for x in self.blocks),
            first=sum(least[x] for x in self.others if x in self.chain.first),
            last=sum(least[x] for x in self.others if x in self.chain.later),
        )

    def _held(self, kind: _Kind | None, room: Fraction) -> list[int | None]:
        """Most blocks of every stage on groups of this kind; None if it cannot hold its own."""
        if kind is None:
            return [None] * self.shape.pp
        found: list[int | None] = []
        for i, c in enumerate(self.chain.capacities):
            most = self.most
            if c > 0:
                time = room / c - kind.first * (i == 0) - kind.last * (i == self.shape.pp - 1)
                most = min(most, floor(time / max(kind.block, 1)))
            found.append(most if most >= self.fewest else None)
        return found

    def _refuted(self, fast_groups: list[int], slow_groups: list[int], time_ns: int) -> bool:
        """Whether no plan takes this long or less, with these groups set apart."""
        chain, count = self.chain, len(self.blocks)
        num_fast = chain.most_on(fast_groups)
        fast = self._kind(fast_groups if num_fast else [])
        slow = self._kind(slow_groups)
        assert slow is not None
        groups = [*(fast_groups if num_fast else []), *slow_groups]
        fixed = chain.once + sum(min(chain.work[j][x] for j in groups) for x in self.others)
        fixed += sum(min(chain.tail[j][x] for j in groups) for x in chain.first)
        each = min(chain.tail[j][x] for j in groups for x in self.blocks)
        surely = sum(x in chain.first for x in self.blocks)
        saved = max(slow.block - fast.block, 0) if fast else 0
        on_fast, on_first = count, surely
        while True:
            latency = count * slow.block - min(on_fast, count) * saved
            room = Fraction(time_ns - fixed - latency - each * max(on_first - surely, 0))
            if room < 0:
                return True
            held = list(zip(self._held(slow, room), self._held(fast, room), strict=True))
            whole, rest = (_filled(part, num_fast) for part in (held, held[1:]))
            if whole is None or rest is None or whole < count:
                return True
            quick = sorted((one or 0 for _, one in held), reverse=True)
            known = sum(quick[:num_fast]), count - rest
            if known == (on_fast, on_first):
                return False
            on_fast, on_first = known


def _filled(held: list[tuple[int | None, int | None]], num_fast: int) -> int | None:
    """Most blocks of stages, at most so many of them fast; None if they cannot be filled.

    held: most blocks of every stage if it is slow, and if it is fast; None if it cannot be.
    """
    forced = [fast for slow, fast in held if slow is None]
    if len(forced) > num_fast or None in forced:
        return None
    gains = sorted(
        (max(fast - slow, 0) for slow, fast in held if slow is not None and fast is not None),
        reverse=True,
    )
    free = num_fast - len(forced)
    slowly = sum(slow for slow, _ in held if slow is not None)
    return slowly + sum(fast for fast in forced if fast is not None) + sum(gains[:free])
