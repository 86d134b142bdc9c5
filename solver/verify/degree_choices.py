"""How GPUs may share a stage and its experts, worked out again: `space` says the rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from formulations.instance import Instance
from formulations.plan import Degrees, uniform_degrees
from solver.verify.node_choices import Nodes, instance_on


def doubling(largest: int) -> list[int]:
    """Powers of two up to the largest."""
    sizes = [1]
    while sizes[-1] * 2 <= largest:
        sizes.append(sizes[-1] * 2)
    return sizes


@dataclass(frozen=True)
class DegreeChoices:
    """Degrees of the node groups of a plan, and of its experts."""

    instance: Instance

    @cached_property
    def _tensor_degrees(self) -> list[int]:
        """Sizes of tensor groups that share the heads evenly."""
        groups = self.instance.cluster.groups
        given = self.instance.search.tensor_parallel
        sizes = doubling(max(group.gpus_per_node for group in groups)) if given is None else given
        return [tp for tp in sorted(set(sizes)) if self.instance.workload.kv_heads % tp == 0]

    def of(self, nodes_used: Nodes) -> list[tuple[Degrees, ...]]:
        """Per node group how the GPUs of a slot share its stage."""
        nodes = [group.gpus_per_node for group in self.instance.cluster.groups]
        used = [j for j, count in enumerate(nodes_used) if count]
        found: list[tuple[Degrees, ...]] = []
        alike = self._alike(nodes_used)
        own_search = instance_on(self.instance, nodes_used).search
        for cp in sorted(set(own_search.context_parallel)):
            slots = [self.slots(nodes[j], cp) for j in used]
            if self.instance.search.degrees == "uniform":
                shared = (own for own in slots[0] if all(own in others for others in slots))
                plain = [own for own in shared if own.parts == 1]
                found += [uniform_degrees(self.instance, own.tp, cp) for own in plain]
                continue
            for own in product(*slots):
                named = dict(zip(used, own, strict=True))
                swapped = ((named[i], named[j]) for i, j in alike)
                if all((a.tp, a.parts) <= (b.tp, b.parts) for a, b in swapped):
                    found.append(tuple(named.get(j, own[0]) for j in range(len(nodes))))
        return found

    def _alike(self, nodes_used: Nodes) -> list[tuple[int, int]]:
        """Groups used that differ in name and size alone, and not in the nodes used of them.

        Plans of one with the degrees of the other are the same.
        """
        groups = self.instance.cluster.groups
        own = [group.model_dump(exclude={"name", "nodes"}) for group in groups]
        used = [j for j, count in enumerate(nodes_used) if count]
        pairs = ((i, j) for i in used for j in used if i < j and nodes_used[i] == nodes_used[j])
        return [(i, j) for i, j in pairs if own[i] == own[j]]

    def slots(self, gpus: int, cp: int) -> list[Degrees]:
        """Slots of which a whole number make a node of so many GPUs, cp of them per sequence."""
        pairs = product(self._tensor_degrees, range(1, gpus + 1))
        known = (Degrees(tp=tp, parts=n, cp=cp) for tp, n in pairs if gpus % (tp * n * cp) == 0)
        return [own for own in known if cp == 1 or self._shares_sequences(own)]

    def _shares_sequences(self, own: Degrees) -> bool:
        """Whether tensor groups can share every sequence: two pieces per GPU, or whole heads."""
        workload, group = self.instance.workload, own.cp * own.tp
        if self.instance.search.context_method == "all_to_all" and workload.kv_heads % group:
            return False
        return workload.sequence_length % (2 * group) == 0

    def of_experts(
        self, nodes_used: Nodes, degrees: Sequence[Degrees], dp: int
    ) -> list[tuple[int, int | None]]:
        """GPUs that share the experts, and that split each; None: the tensor group.

        Those that share divide the experts and the GPUs of a stage with a share of the same, and
        lie in one zone. More than one, or whole experts on GPUs of tensor groups, only where all
        node groups used have equal degrees, and tensor groups split the sequence.
        """
        groups, found = self.instance.cluster.groups, list[tuple[int, int | None]]()
        used = [j for j, n in enumerate(nodes_used) if n]
        experts, search = self.instance.workload.experts, self.instance.search
        apart = len({groups[j].zone for j in used}) > 1
        alike = len({degrees[j] for j in used}) == 1
        wide = any(degrees[j].tp > 1 for j in used)
        split = search.sequence_parallel or not wide
        for etp, ep in product((None, 1), sorted(set(search.expert_parallel))):
            if etp is None and wide and "tp" not in search.expert_tensor_parallel:
                continue
            if etp == 1 and not (wide and experts and 1 in search.expert_tensor_parallel):
                continue
            lanes = [etp or degrees[j].tp for j in used]
            counts = [dp * own.tp * own.parts * own.cp for own in (degrees[j] for j in used)]
            if apart:
                counts, lanes = counts + [groups[j].gpus_per_node for j in used], lanes * 2
            fits = not any(n // own % ep for n, own in zip(counts, lanes, strict=True))
            fits &= experts > 0 and experts % ep == 0
            if (ep == 1 and etp is None) or (fits and alike and split):
                found.append((ep, etp))
        return found
