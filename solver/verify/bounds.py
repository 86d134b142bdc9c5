"""What proofs about the configs of one instance share; what no split, or no stage, of one can be.

Whole numbers throughout, so that no bound is a rounding error too high.
"""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

from formulations.costs.compute import LayerTimes, TimeColumns
from formulations.costs.experts import Members, members_of
from formulations.costs.intervals import Array, Mask, interval_sums
from formulations.costs.placement import Placer
from formulations.costs.sharding import widest_group, with_exchanges
from formulations.costs.stage_costs import StageCosts
from formulations.costs.tables import CostTables, build_tables
from formulations.costs.transfers import RingRate
from formulations.instance import Instance
from formulations.instance.workload import Recompute
from formulations.plan import Configuration, Degrees, Plan, uniform_plan
from formulations.schedules.registry import SCHEDULES, Moments, in_flight, stage_moments
from formulations.space import PlanSpace
from formulations.space.configurations import Nodes
from solver.verify.path_lengths import NEVER

#: More than any step time, which `build_tables` sees to: no plan is faster if none fits.
ANY_TIME_NS = NEVER - 1

#: Degrees by node group, micro-batch size, recomputation.
TimesKey = tuple[tuple[Degrees, ...], int, Recompute, Members]
StageTimes = tuple[Array, Array, Array]  #: forward, backward, weight gradients that are put off


def config_key(instance: Instance, config: Configuration) -> TimesKey:
    """What layer times depend on where nothing is exchanged with every micro-batch."""
    members = members_of(instance, config)
    return config.degrees, config.micro_batch, config.recompute[0], members


class Prover:
    """Proofs for the configurations of one instance; what they share is worked out once.

    Where nodes decide on flash attention, those of a configuration are `on` its nodes.
    """

    def __init__(self, space: PlanSpace) -> None:
        self._sides: dict[bool, Prover] = {}
        self.space, self.instance = space, space.instance
        self.layers = space.instance.workload.layers
        self._columns = TimeColumns(self.instance)
        self.times = lru_cache(maxsize=None)(self._columns.times)
        self.tables = lru_cache(maxsize=64)(self._tables)
        self._intervals = lru_cache(maxsize=None)(self._interval_times)
        self._stage_costs: dict[tuple[object, ...], StageCosts] = {}
        self._extra: dict[tuple[object, ...], Array] = {}

    def on(self, nodes_used: Nodes) -> "Prover":
        """The prover for configurations on these nodes."""
        instance = self.instance.on(nodes_used)
        if instance is self.instance:
            return self
        fused = instance.workload.flash_attention
        if fused not in self._sides:
            self._sides[fused] = Prover(PlanSpace(instance))
        return self._sides[fused]

    def _tables(self, config: Configuration) -> CostTables:
        """All costs of a configuration. Raises InstanceError where a step may take weeks."""
        degrees, b, _, members = config_key(self.instance, config)
        times = (self.times(degrees, b, way, members) for way in config.recompute)
        paced = [with_exchanges(self.instance, config, by_way) for by_way in times]
        return build_tables(self.instance, config, paced)

    def stage_times(self, config: Configuration) -> StageTimes:
        """[J, n, n] ns of layers [a, b), with as little recomputed as the configuration allows."""
        splits = SCHEDULES[config.schedule].splits_backward
        key = config if config.in_lockstep else config_key(self.instance, config)
        return self._intervals(key, splits)

    def times_of(self, config: Configuration) -> LayerTimes:
        """Layer times of a config, with what its replicas exchange with every micro-batch."""
        return with_exchanges(self.instance, config, self.times(*config_key(self.instance, config)))

    def _interval_times(self, key: Configuration | TimesKey, splits: bool) -> StageTimes:
        times = self.times_of(key) if isinstance(key, Configuration) else self.times(*key)
        weight = times.weight_ns * splits
        parts = (times.forward_ns, times.backward_ns - weight, weight)
        forward, backward, weight = (interval_sums(part.T) for part in parts)
        return forward, backward, weight

    @cached_property
    def enough_blocks(self) -> Mask:
        """[n, n] whether layers [a, b) may be a stage, memory aside."""
        blocks = interval_sums(np.array([layer.is_block for layer in self.layers], dtype=np.int64))
        layers = interval_sums(np.ones(len(self.layers), dtype=np.int64))
        fewest = 0 if self.instance.search.embedding_only_stages else 1
        return (layers >= 1) & (blocks >= fewest)

    def _memory_key(self, config: Configuration) -> tuple[object, ...]:
        """What memory and recomputation of a stage depend on, given what it holds."""
        degrees, b, _, members = config_key(self.instance, config)
        layout = (degrees, b, config.pp == 1, config.shards, config.ep, members)
        # Devices with several chunks hold what their schedule, pp and vpp say: `StageCosts`.
        chunked = config.vpp > 1 and (config.schedule, config.pp, *config.chunking)
        return (*layout, config.recompute, chunked)

    def stage_costs(self, config: Configuration) -> StageCosts:
        """What stages recompute and have room for; shared by configurations of another pp."""
        key = self._memory_key(config)
        if key not in self._stage_costs:
            self._stage_costs[key] = StageCosts(self.tables(config))
        return self._stage_costs[key]

    def extra(self, config: Configuration, stage: int, micro_batches: int) -> Array:
        """[J, n, n] ns that a stage with layers [a, b) recomputes for; NEVER where it has no room.

        Of replicas with so many micro-batches. A stage beside others on its device is taken alone:
        with them it recomputes no less.
        """
        moments = stage_moments(config.schedule, config.pp, stage, micro_batches, *config.chunking)
        return self._extra_of(config, moments)

    def _extra_of(self, config: Configuration, moments: Moments) -> Array:
        key = (*self._memory_key(config), moments)
        if key not in self._extra:
            costs, groups = self.stage_costs(config), range(len(config.degrees))
            extra = np.stack([costs.extra_of(j, moments) for j in groups])
            self._extra[key] = np.minimum(extra, NEVER)
        return self._extra[key]

    def held(self, config: Configuration, stage: int, most: int) -> Array:
        """[J, n, n] largest number of micro-batches in flight, up to `most`, with which it fits.

        NEVER where that is all that the stage ever holds, or that `most` asks for.
        """
        prefixes = SCHEDULES[config.schedule].prefixes
        asked = min(most, in_flight(config.schedule, config.pp, stage, NEVER)) if prefixes else 1
        fits = [self._extra_of(config, ((n, 0),)) < NEVER for n in range(1, asked + 1)]
        number: Array = np.sum(fits, axis=0)
        return np.where(number == asked, NEVER, number)

    def backward_ns(self, config: Configuration, stage: int, micro_batches: int) -> Array:
        """[J, n, n] of a stage of a replica with so many, or with more no less."""
        backward = self.stage_times(config)[1]
        if len(config.recompute) == 1:
            return backward
        extra = self.extra(config, stage, micro_batches)
        return backward + np.where(extra < NEVER, extra, 0)

    def plan(
        self,
        config: Configuration,
        order: Sequence[int],
        ends: Sequence[int],
        shares: Sequence[int],
    ) -> Plan:
        """The plan of a config with these node groups in order, boundaries and micro-batches."""
        choose = StageCosts(self.tables(config)).recomputed
        return uniform_plan(self.instance, config, order, ends, shares, choose)

    def lacks_memory(self, config: Configuration) -> bool:
        """Whether no split fits, even if every stage had the roomiest GPU used to itself.

        Proof. In any plan of the configuration each stage k lies on GPUs of some group used, and
        holds at least as many micro-batches in flight as a replica with m micro-batches does, m the
        least that a replica can have: that grows with m. What its device holds of other chunks
        comes on top. Of groups with equal degrees the one with most memory has room for all that
        others have. So a plan that fits is a chain of intervals that fit here. `ends` are the
        layers at which a chain of k intervals can end, for k = 0, 1, ...; without the last layer
        among them at the end there is none.
        """
        total = self.instance.workload.global_batch // config.micro_batch
        even = self.instance.search.micro_batches == "even"
        fewest = total // config.dp if even else 1
        costs = self.stage_costs(config)
        ends = np.zeros(len(self.layers) + 1, dtype=bool)
        ends[0] = True
        for k in range(config.num_stages):
            moments = stage_moments(config.schedule, config.pp, k, fewest, *config.chunking)
            fits = [costs.extra_of(j, moments) < NEVER for j in costs.tables.roomiest]
            ends = np.any((self.enough_blocks & np.any(fits, axis=0))[ends], axis=0)
        return not ends[-1]

    def keeps_stages_apart(self, config: Configuration, below_ns: int) -> bool:
        """Whether no stage of any plan with a step below this lies in two zones.

        Then all replicas go from zone to zone together. One replica is on one node; else it takes
        too long, see `spanning_ns`.
        """
        if not self.instance.cluster.links_among(config.groups_used):
            return False
        return config.dp == 1 or self.spanning_ns(config) >= below_ns

    def spanning_ns(self, config: Configuration) -> int:
        """No plan with some stage in two zones has a shorter step, if there are two.

        Proof. The last backward of the stage on a replica comes after a forward of the whole chain
        by one micro-batch, each layer on some group used, whatever the schedule. Then follow its
        gradient sync and gather, one after the other. The stage has a layer, and N nodes, from 2 to
        min(dp, all nodes): its tp rings at least share a link between two zones used, so no
        collective has less time per byte than tp rings on that link, the widest, nor a shorter
        start than the latency of N on it. Of several layers each adds its own time; the least over
        layers, N and links is no more than any.
        """
        tables, cluster = self.tables(config), self.instance.cluster
        placer, widest = Placer(tables), widest_group(config)
        phases = [phase for phase in (placer.sync, placer.gather) if phase is not None]
        counts = range(2, min(config.dp, sum(config.nodes_used)) + 1)
        spans_ns = []
        for nodes, link in product(counts, cluster.links_among(tables.config.groups_used)):
            rate = RingRate(config.widest_tp / link.bandwidth_bytes_per_s, widest)
            rings = (int(phase.outside_ns(rate, nodes).min()) for phase in phases)
            starts = (phase.latency_ns(0.0, nodes, link.latency_s) for phase in phases)
            spans_ns.append(sum(rings) + sum(starts))
        forward, _, _ = self.stage_times(config)
        onward = np.diff(forward[tables.config.groups_used, 0], axis=1).min(axis=0).sum()
        return int(onward) + min(spans_ns)
