"""All costs of a plan, worked out from docs/cost.md alone: an oracle for `formulations.costs`.

It reads the instance and the plan, the sizes of the model, the links of the cluster and `search`,
and imports nothing that counts. What a layer of the instance has of FLOPs, kernels and bytes is
given; `layers` counts its FLOPs and parameters from the sizes.
"""

from formulations.instance import Instance
from formulations.plan import Plan
from tests.oracles.layers import Model
from tests.oracles.stages import Memory, Passes
from tests.oracles.traffic import Messages, Places, Rings


def counted(instance: Instance, plan: Plan, model: Model) -> dict[str, object]:
    """All costs of a plan, by their names in `PlanCosts`."""
    at = Places(instance, plan, model)
    rings, messages, memory = Rings(at), Messages(at), Memory(at)
    passes, replicas, devices = Passes(at, rings), range(plan.config.dp), range(plan.config.pp)
    times = [[passes.times_ns(s, r) for r in replicas] for s in range(len(at.stages))]
    forward, backward, weight = ([[one[i] for one in row] for row in times] for i in range(3))
    sync = [rings.after_ns(d, rings.sync_factor, model.gradient_bytes) for d in devices]
    gather = [rings.after_ns(d, rings.gather_factor, model.parameter_bytes, False) for d in devices]
    usable = 1 - instance.limits.memory_headroom
    boundaries = range(len(at.stages) - 1)
    return {
        "forward_ns": forward,
        "backward_ns": backward,
        "weight_ns": weight,
        "send_ns": [[messages.time_ns(s, r) for r in replicas] for s in boundaries],
        "sync_ns": sync,
        "optimizer_ns": [max(memory.optimizer_ns(d, r) for r in replicas) for d in devices],
        "gather_ns": gather,
        "embedding_ns": rings.embedding_ns(),
        "memory_bytes": [[sum(memory.parts(d, r).values()) for r in replicas] for d in devices],
        "limit_bytes": [
            [int(at.of(at.stages[d][r].group.node).gpu.memory_bytes * usable) for r in replicas]
            for d in devices
        ],
    }
