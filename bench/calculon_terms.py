"""The step time and memory of GPT-3 175B as Calculon gives them, by what they are made of.

See `bench.calculon_kernels` for the source. Equal blocks alone are counted, neither embedding nor
head; optimizer states are split over the replicas.
"""

from bench.calculon_kernels import (
    BLOCKS,
    DATA_USAGE,
    ELEMENT_BYTES,
    Kernel,
    Layout,
    Pass,
    Row,
    between_nodes_s,
    memory_s,
    vector_s,
)

PASSES: tuple[Pass, ...] = ("forward", "inputs", "weights")
#: Adam: FLOPs and bytes per parameter, the master copy and two moments in 32 bit.
OPTIMIZER_FLOPS, OPTIMIZER_BYTES = 11, 12


class Calculon:
    """Calculon's model of one row."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._layout = Layout(
            tp=row["tp"],
            micro_batch=row["micro_batch"],
            split=row["tp_comm"] == "rs_ag",
            ring=row["tp_overlap"] == "ring",
            recompute=row["recompute"],
            gathers_again=row["seq_par_ag_redo"],
        )
        self._kernels = list(self._layout.kernels())
        self._pp: int = row["pp"]
        self._dp: int = row["dp"]
        self._chunks: int = row["virtual_pipeline"]
        self._blocks = BLOCKS // self._pp
        self._per_chunk = self._blocks // self._chunks
        self._micro_batches: int = row["global_batch"] // self._dp // row["micro_batch"]
        self._message_s = between_nodes_s(self._layout.own * ELEMENT_BYTES)

    def times_s(self) -> dict[str, float]:
        """Seconds of a step by kind; their sum is the step."""
        compute, traffic = self._sums()
        again, gathered = self._again()
        passes = self._blocks * self._micro_batches
        forward, backward = compute["forward"] + traffic["forward"], self._backward_s()
        chunk = self._per_chunk * (forward + backward) + 2 * self._message_s
        return {
            "compute": passes * sum(compute.values()),
            "recomputation": passes * (again + gathered),
            "tensor-parallel traffic": passes * (traffic["forward"] + traffic["inputs"]),
            "embedding and head": 0.0,
            "pipeline": self._bubbles() * chunk
            + 2 * self._micro_batches * self._chunks * self._message_s,
            "gradient sync": self._sync_s(),
            "optimizer": self._blocks * sum(map(self._optimizer_s, self._kernels)),
        }

    def memory_bytes(self) -> dict[str, float]:
        """Bytes of the fullest GPU by kind."""
        parameters = ELEMENT_BYTES * sum(kernel.parameters for kernel in self._kernels)
        once = sum(k.input_bytes for k in self._kernels if not k.shares_input)
        held = float(min(self._micro_batches, self._pp))
        if self._chunks > 1:
            held *= 1 + (self._pp - 1) / (self._chunks * self._pp)
        if self._layout.full:
            kept = once + self._blocks * self._layout.elements * ELEMENT_BYTES * held
        else:
            kept = once + self._kept_bytes() * (self._blocks * held - 1)
        return {
            "weights": self._blocks * parameters,
            "gradients": 2 * parameters + (self._blocks - 1) * parameters / self._dp,
            "optimizer": self._blocks * parameters / ELEMENT_BYTES * OPTIMIZER_BYTES / self._dp,
            "activations": kept + sum(kernel.gradient_bytes for kernel in self._kernels),
        }

    def _sums(self) -> tuple[dict[Pass, float], dict[Pass, float]]:
        """Of a block and micro-batch by pass: seconds of kernels, of traffic that is seen."""
        found = {one: [kernel.seconds(one) for kernel in self._kernels] for one in PASSES}
        compute = {one: sum(own for own, _ in pairs) for one, pairs in found.items()}
        return compute, {one: sum(seen for _, seen in pairs) for one, pairs in found.items()}

    def _again(self) -> tuple[float, float]:
        """Seconds of what a block recomputes, and of what it gathers again and is seen."""
        again = sum(kernel.seconds("forward")[0] for kernel in self._kernels if kernel.again)
        gathered = 0.0
        for kernel in self._kernels:
            traffic = kernel.traffic
            if traffic and traffic.again:
                tiled = traffic.tiles > 1
                gathered += kernel.seconds("forward" if tiled else "weights")[1]
        return again, gathered

    def _backward_s(self) -> float:
        compute, traffic = self._sums()
        return compute["inputs"] + compute["weights"] + traffic["inputs"] + sum(self._again())

    def _bubbles(self) -> int:
        """Chunks of a micro-batch for which a GPU waits."""
        left = self._micro_batches % self._pp
        return self._pp - 1 + (self._chunks - 1) * (self._pp - left if left else 0)

    def _kept_bytes(self) -> float:
        """Of a block and micro-batch, what the backward pass needs."""
        return sum(
            k.input_bytes * k.keeps_input - k.output_bytes * (not k.keeps_output)
            for k in self._kernels
        )

    def _optimizer_s(self, kernel: Kernel) -> float:
        if not kernel.parameters:
            return 0.0
        own = kernel.parameters / self._dp
        return vector_s(OPTIMIZER_FLOPS * own) + memory_s(OPTIMIZER_BYTES * own)

    def _sync_s(self) -> float:
        """Seconds of the exchange of gradients that are seen.

        With overlap: of every chunk but the last one what is longer than the backward passes of
        other micro-batches, of the last one all but its last block alike; and what the traffic
        takes from computation.
        """
        parameters = ELEMENT_BYTES * sum(kernel.parameters for kernel in self._kernels)
        one: float = 2 * between_nodes_s(parameters)
        if not self._row["dp_overlap"]:
            return float(self._blocks * one)
        compute, window = self._overlap()
        chunk, backward = self._per_chunk * one, self._backward_s()
        messages = min(
            chunk // (self._per_chunk * backward + self._message_s),
            self._micro_batches % self._pp or self._pp,
        )
        busy = self._pp * self._per_chunk * compute * DATA_USAGE
        over: float = chunk - self._pp * window + messages * self._message_s + busy
        seen: float = (self._chunks - 1) * (over if over > 0 else chunk * DATA_USAGE)
        others = (self._per_chunk - 1) * one
        last = window - self._message_s * 1.5 - backward if self._per_chunk > 1 else 0.0
        over = others + compute * DATA_USAGE - last
        return one + seen + (over if over > 0 else others * DATA_USAGE)

    def _overlap(self) -> tuple[float, float]:
        """Seconds of FLOPs in a block's backward pass; of a chunk's without access to memory.

        What is recomputed counts with all kernels before it, as Calculon sums it.
        """
        flops = memory = flops_again = memory_again = 0.0
        for kernel in self._kernels:
            flops += kernel.flops_s("forward")
            memory += kernel.memory_s("forward")
            if kernel.again:
                flops_again += flops
                memory_again += memory
        compute, used = flops_again, memory_again
        for kernel in self._kernels:
            compute += kernel.flops_s("inputs") + kernel.flops_s("weights")
            used += kernel.memory_s("inputs") + kernel.memory_s("weights")
        return compute, self._per_chunk * (self._backward_s() - used) + self._message_s
