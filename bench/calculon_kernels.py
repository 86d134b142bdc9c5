"""The kernels of a block of GPT-3 175B as Calculon counts them, written anew from its public code.

Isaev et al., SC 2023 (doi 10.1145/3581784.3607102); github.com/calculon-ai/calculon, calculon/llm
and systems/a100_80g.json, as of commits 71f6435 and c02c5e9. A kernel takes the time of its FLOPs
and then that of its bytes; both at a share of the peak that rises with the kernel in steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Row = Mapping[str, Any]
Pass = Literal["forward", "inputs", "weights"]  #: gradients of inputs, of weights

HIDDEN, SEQUENCE, HEADS, BLOCKS = 12288, 2048, 96, 96
ELEMENT_BYTES = 2
GIGA = 1e9

#: Least FLOPs or bytes, and the share of the peak from there on.
Steps = tuple[tuple[float, float], ...]
MATRIX: Steps = ((128 * GIGA, 0.95), (16 * GIGA, 0.9), (GIGA, 0.6), (0, 0.1))
VECTOR: Steps = ((16 * GIGA, 0.95), (GIGA, 0.5), (0, 0.1))
MEMORY: Steps = ((100e6, 0.9), (10e6, 0.75), (1e6, 0.6), (0, 0.3))
MATRIX_FLOPS, VECTOR_FLOPS, MEMORY_BYTES_PER_S = 312e12, 78e12, 2048e9

#: Share of the GPU that moving data between GPUs takes from products: in the node, between nodes.
TENSOR_USAGE, DATA_USAGE = 0.15, 0.02
#: Of a collective in the node, the bytes that count per byte of the buffer and rank.
IN_NODE = {"reduce_scatter": 1.5, "all_gather": 1.5, "all_reduce": 2.0}
IN_NODE_BYTES_PER_S, IN_NODE_LATENCY_S = 0.65 * 300e9, 10e-6
BETWEEN_BYTES_PER_S, BETWEEN_LATENCY_S = 0.9 * 25e9, 20e-6


def _seconds(amount: float, peak: float, steps: Steps) -> float:
    share = next(share for least, share in steps if amount >= least)
    return amount / (peak * share)


def vector_s(flops: float) -> float:
    """Seconds of FLOPs that no matrix unit does."""
    return _seconds(flops, VECTOR_FLOPS, VECTOR)


def memory_s(size_bytes: float) -> float:
    """Seconds of bytes read and written."""
    return _seconds(size_bytes, MEMORY_BYTES_PER_S, MEMORY)


def between_nodes_s(size_bytes: float) -> float:
    """Seconds of a message, a reduce-scatter or an all-gather of a buffer between nodes."""
    return BETWEEN_LATENCY_S + size_bytes / BETWEEN_BYTES_PER_S


@dataclass(frozen=True)
class Traffic:
    """The collective of a tensor-parallel group at a kernel, by pass; None: there is none."""

    tp: int
    elements: int
    forward: str | None
    backward: str | None
    tiles: int  #: parts that overlap with parts of the kernel; 1: nothing does
    again: bool  #: is the forward one repeated in the backward pass?

    def link_s(self, kind: str | None) -> float:
        """Seconds on the link."""
        if kind is None:
            return 0.0
        size = IN_NODE[kind] * self.elements * ELEMENT_BYTES * (1 - 1 / self.tp)
        return IN_NODE_LATENCY_S + size / IN_NODE_BYTES_PER_S

    def adds(self, kind: str | None) -> float:
        """Elements that it adds up on a GPU."""
        reduces = kind in ("reduce_scatter", "all_reduce")
        return self.elements * (1 - 1 / self.tp) if reduces else 0.0

    def whole_s(self, one: Pass) -> float:
        """With what it adds up, and, unless it overlaps, reads and writes."""
        if one == "weights":
            return self.link_s(self.forward) if self.again else 0.0
        kind = self.forward if one == "forward" else self.backward
        if kind is None:
            return 0.0
        copies = 0.0 if self.tiles > 1 else memory_s(2 * self.elements * ELEMENT_BYTES)
        return self.link_s(kind) + vector_s(self.adds(kind)) + copies


@dataclass(frozen=True)
class Kernel:
    """FLOPs and bytes by pass; bytes that it keeps, passes on, and needs for its gradient."""

    flops: tuple[float, float, float]
    moved_bytes: tuple[float, float, float]
    input_bytes: float
    output_bytes: float
    gradient_bytes: float
    parameters: int = 0
    matrix: bool = False
    again: bool = False  #: is it recomputed?
    keeps_input: bool = True
    keeps_output: bool = True
    shares_input: bool = False  #: is its input that of the kernel before?
    traffic: Traffic | None = None

    def _index(self, one: Pass) -> int:
        return ("forward", "inputs", "weights").index(one)

    def flops_s(self, one: Pass) -> float:
        """Seconds of its FLOPs."""
        flops = self.flops[self._index(one)]
        return _seconds(flops, MATRIX_FLOPS, MATRIX) if self.matrix else vector_s(flops)

    def memory_s(self, one: Pass) -> float:
        """Seconds of its bytes."""
        return memory_s(self.moved_bytes[self._index(one)])

    def seconds(self, one: Pass) -> tuple[float, float]:
        """Of the kernel, and of its traffic that is seen."""
        own, flops = self.flops_s(one) + self.memory_s(one), self.flops_s(one)
        traffic = self.traffic
        link = traffic.whole_s(one) if traffic else 0.0
        if traffic is not None and traffic.tiles == 1:
            return 0.0, link  # a collective's own work is in the link's time
        if traffic is None or link == 0:
            return own, 0.0
        hidden = (traffic.tiles - 1) / traffic.tiles
        slowed = flops / (1 - TENSOR_USAGE)
        if link > slowed:
            return own + hidden * (slowed - flops), hidden * (link - slowed)
        return own + hidden * link * TENSOR_USAGE, 0.0


def _kernel(flops: Sequence[float], inputs: float, outputs: float, **fields: Any) -> Kernel:
    """A kernel on elements; what it moves, unless given, by its inputs, outputs and parameters."""
    size, parameters = ELEMENT_BYTES, fields.get("parameters", 0)
    every = size * (inputs + outputs + parameters)
    usual: dict[str, Any] = {
        "moved_bytes": (every, every, every if parameters else 0.0),
        "input_bytes": size * inputs,
        "output_bytes": size * outputs,
        "gradient_bytes": size * outputs,
    }
    forward, backward, weights = flops
    return Kernel(flops=(forward, backward, weights), **(usual | fields))


def _product(rows: int, inner: int, columns: int, **fields: Any) -> Kernel:
    one = 2.0 * rows * inner * columns
    own = {"parameters": inner * columns, "matrix": True}
    return _kernel((one, one, one), rows * inner, rows * columns, **(own | fields))


def _batched(batch: int, rows: int, inner: int, columns: int, **fields: Any) -> Kernel:
    one = 2.0 * batch * rows * inner * columns
    inputs = batch * (rows * inner + inner * columns)
    return _kernel((one, 2 * one, 0), inputs, batch * rows * columns, matrix=True, **fields)


def _dropout(elements: int, **fields: Any) -> Kernel:
    """Keeps a byte per element, the mask, and books its gradient as one too."""
    moved = (2.0 * ELEMENT_BYTES + 1) * elements
    own = {"moved_bytes": (moved, moved, 0.0), "input_bytes": elements, "gradient_bytes": elements}
    return _kernel((elements, elements, 0), elements, elements, **(own | fields))


def _fork(elements: int, users: int, **fields: Any) -> Kernel:
    """Adds up the gradients of its users."""
    moved = (0.0, float(ELEMENT_BYTES * elements * (users + 1)), 0.0)
    return _kernel((0, users * elements, 0), elements, 0, moved_bytes=moved, **fields)


def _collective(traffic: Traffic, split: bool, **fields: Any) -> Kernel:
    """Traffic that does not overlap, with its buffers."""
    size, kinds = traffic.elements * ELEMENT_BYTES, (traffic.forward, traffic.backward)
    kept, gradient = (size / traffic.tp if split else size * (kind is not None) for kind in kinds)
    moved = [2.0 * size * (kind is not None) for kind in kinds]
    own = {"moved_bytes": (*moved, 0.0), "input_bytes": kept, "gradient_bytes": gradient}
    return _kernel((*map(traffic.adds, kinds), 0), 0, 0, traffic=traffic, **(own | fields))


@dataclass(frozen=True)
class Layout:
    """How a row computes a block."""

    tp: int
    micro_batch: int
    split: bool  #: sequence parallel
    ring: bool  #: does traffic overlap with products?
    recompute: str
    gathers_again: bool

    @property
    def elements(self) -> int:
        """Activations of a micro-batch."""
        return self.micro_batch * SEQUENCE * HIDDEN

    @property
    def own(self) -> int:
        """Of those, what a GPU has between products."""
        return self.elements // self.tp if self.split else self.elements

    @property
    def full(self) -> bool:
        """Whether whole blocks are recomputed."""
        return self.recompute == "full"

    def _traffic(self, into: bool, again: bool) -> Traffic:
        whole = ("all_gather", "reduce_scatter") if self.split else (None, "all_reduce")
        forward, backward = whole if into else whole[::-1]
        tiles = self.tp if self.ring else 1
        return Traffic(self.tp, self.elements, forward, backward, tiles, again)

    def products(self, columns: int, parts: int, again: bool, shared: bool) -> Iterator[Kernel]:
        """The products that open a half of a block, and what they gather; `parts` of them."""
        rows, full, traffic = self.micro_batch * SEQUENCE, self.full, self._traffic(True, again)
        each = columns // self.tp // parts
        if self.ring:
            whole = _product(rows, HIDDEN, columns // self.tp, again=full, traffic=traffic)
            yield _overlapped(whole, rows * HIDDEN // (self.tp if self.split else 1), None, self)
            return
        yield _collective(traffic, self.split)
        if shared:
            yield _fork(self.elements, parts, again=again, keeps_input=not again)
        for _ in range(parts):
            kept = {"keeps_input": False, "shares_input": True} if shared else {}
            yield _product(rows, HIDDEN, each, again=full, **({"keeps_input": not again} | kept))

    def closing(self, inner: int) -> Iterator[Kernel]:
        """The product that ends a half of a block, the sum over the group, dropout, residual."""
        rows, own, full = self.micro_batch * SEQUENCE, self.own, self.full
        traffic, share = self._traffic(False, full), inner // self.tp
        if self.ring:
            whole = _product(rows, share, HIDDEN, again=full, traffic=traffic)
            buffers = 2 * self.own
            yield _overlapped(whole, rows * share if self.split else 0, buffers, self)
        else:
            yield _product(rows, share, HIDDEN, again=full)
            yield _collective(traffic, self.split, keeps_input=False)
        yield _dropout(own, again=full)
        taken = {"keeps_input": False, "shares_input": True}
        yield _kernel((own, 2 * own, 0), 2 * own, own, again=full, **taken)

    def opening(self) -> Iterator[Kernel]:
        """The residual's fork and the norm."""
        own, full = self.own, self.full
        yield _fork(own, 2, again=full)
        taken = {"keeps_input": False, "shares_input": True, "parameters": 2 * HIDDEN}
        yield _kernel((9 * own, 14 * own, 7 * own), own, own, again=full, **taken)

    def core(self) -> Iterator[Kernel]:
        """Scores, softmax, dropout, weighted sum."""
        heads, again = self.micro_batch * HEADS // self.tp, self.recompute != "none"
        scores, head = heads * SEQUENCE**2, HIDDEN // HEADS
        out = {"again": again, "keeps_output": not again}
        yield _batched(heads, SEQUENCE, head, SEQUENCE, **out)
        yield _kernel((5 * scores, 8 * scores, 0), scores, scores, **out)
        yield _dropout(scores, again=again, keeps_input=not again)
        yield _batched(heads, SEQUENCE, SEQUENCE, head, again=self.full)

    def kernels(self) -> Iterator[Kernel]:
        """All kernels of a block in order."""
        again = self.full or self.gathers_again
        yield from self.opening()
        yield from self.products(3 * HIDDEN, 3, again or self.recompute != "none", True)
        yield from self.core()
        yield from self.closing(HIDDEN)
        yield from self.opening()
        yield from self.products(4 * HIDDEN, 1, again, False)
        wide = 4 * self.elements // self.tp
        fused = {"input_bytes": 0, "gradient_bytes": 0}
        yield _kernel((8 * wide, 13 * wide, 0), wide, wide, again=self.full, **fused)
        yield from self.closing(4 * HIDDEN)


def _overlapped(whole: Kernel, kept: int, gradient: int | None, layout: Layout) -> Kernel:
    """A product in tiles: its bytes as Calculon books them, of elements kept and of gradients."""
    size = ELEMENT_BYTES
    if gradient is None:  # it opens a half
        gradient = int(whole.output_bytes) // size if layout.split else 0
    elif not layout.split:
        gradient = 2 * layout.elements
    moved = float(size * (whole.parameters + kept + gradient))
    every = (whole.moved_bytes[0], moved, moved)
    return replace(
        whole, moved_bytes=every, input_bytes=size * kept, gradient_bytes=size * gradient
    )
