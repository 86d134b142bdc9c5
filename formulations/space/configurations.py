"""The plan space: which configurations an instance, its target and its limits allow.

One walk lists them and tells whether a given one is among them. For every choice of nodes the
fields of a configuration are chosen in a fixed order (`PlanSpace`), each of the values that go with
the fields before it; the rules for each field are the functions below. Search, models, verifier,
`evaluate`, templates and fleets all read this module. Its second opinion is a test oracle, written
from docs/instances.md alone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import gcd
from typing import Any, Literal, NamedTuple

from formulations.costs.renting import is_within, rent_usd_per_hour
from formulations.fleet import Strategy
from formulations.instance import Instance
from formulations.instance.search import RECOMPUTE_WAYS, ScheduleName, ZeroStage, plain_schedules
from formulations.instance.targets import TARGETS
from formulations.instance.workload import Recompute
from formulations.plan import GRADIENTS_SPLIT, Configuration, Degrees, uniform_degrees
from formulations.schedules.registry import SCHEDULES, sizes_of_groups
from formulations.space.launch import shard_choices, sync_choices, zero_choices
from formulations.space.slots import slot_degrees
from formulations.units import powers_of_two

Check = Callable[[], object]  #: raises to end a listing

#: Largest micro-batch tried when the instance names none.
MAX_MICRO_BATCH = 64

#: Choices of nodes between two checks.
CHECKED_EVERY = 512

Nodes = tuple[int, ...]  #: number of nodes used, per node group


def node_vectors(instance: Instance, check: Check = lambda: None) -> Iterator[Nodes]:
    """Nodes used per group: all of them, or any non-empty choice within the price limit.

    `check` is called from time to time, as choices may have no configuration; it may raise.
    """
    for number, vector in enumerate(product(*_counts(instance)), start=1):
        if number % CHECKED_EVERY == 0:
            check()
        if any(vector) and _affordable(instance, vector):
            yield vector


def _counts(instance: Instance) -> list[range]:
    idle = instance.search.idle_nodes
    return [range(0 if idle else g.nodes, g.nodes + 1) for g in instance.cluster.groups]


def _affordable(instance: Instance, vector: tuple[int, ...]) -> bool:
    return is_within(rent_usd_per_hour(instance, vector), instance.limits.max_price_usd_per_hour)


def may_use(instance: Instance, vector: tuple[int, ...]) -> bool:
    """Whether `node_vectors` has these numbers of nodes."""
    counts = zip(vector, _counts(instance), strict=True)
    within = any(vector) and all(count in numbers for count, numbers in counts)
    return within and _affordable(instance, vector)


def group_degrees(instance: Instance, vector: tuple[int, ...]) -> Iterator[tuple[Degrees, ...]]:
    """Degrees by node group, of groups that are not used those of the first that is.

    Slots that fill its nodes; uniform ones are undivided. Groups of equal machines are not told
    apart.
    """
    groups = instance.cluster.groups
    used = [j for j, count in enumerate(vector) if count]
    machines = [
        group.model_copy(update={"name": "", "nodes": vector[j]}) for j, group in enumerate(groups)
    ]
    alike = [(i, j) for i, j in combinations(used, 2) if machines[i] == machines[j]]
    for cp in instance.search.context_parallel:
        choices = [slot_degrees(instance, groups[j], cp) for j in used]
        if instance.search.degrees == "uniform":
            for degrees in choices[0]:
                if degrees.parts == 1 and all(degrees in possible for possible in choices):
                    yield uniform_degrees(instance, degrees.tp, cp)
            continue
        for chosen in product(*choices):
            by_group = dict(zip(used, chosen, strict=True))
            sizes = {j: (degrees.tp, degrees.parts) for j, degrees in by_group.items()}
            if all(sizes[i] <= sizes[j] for i, j in alike):
                yield tuple(by_group.get(j, chosen[0]) for j in range(len(vector)))


def micro_batches(instance: Instance) -> list[int]:
    """Candidates for the micro-batch size that divide the global batch."""
    candidates = instance.search.micro_batch or powers_of_two(MAX_MICRO_BATCH)
    return [b for b in candidates if instance.workload.global_batch % b == 0]


def _most_chunks(instance: Instance) -> int:
    """Virtual stages that the layers fill: with a block each, unless that is not asked for."""
    workload, alone = instance.workload, instance.search.embedding_only_stages
    return len(workload.layers) if alone else workload.num_blocks


def longest_pipeline(instance: Instance) -> int:
    """Most stages that the layers fill and the target runs."""
    longest = _most_chunks(instance)
    return min(longest, TARGETS[instance.search.target].most_stages(instance.workload) or longest)


def recompute_ways(instance: Instance, zero: ZeroStage) -> Iterator[tuple[Recompute, ...]]:
    """The ways to recompute that the devices of a configuration choose among, least time first.

    One way for all where these may not differ; or go through every layer in lockstep, as with ZeRO
    2 and 3.
    """
    search = instance.search
    ways = tuple(way for way in RECOMPUTE_WAYS if way in search.recompute)
    if search.recompute_per == "stage" and zero < GRADIENTS_SPLIT:
        yield ways
    else:
        yield from ((way,) for way in ways)


def pipeline_strategies(instance: Instance, micro_batch: int) -> list[Strategy]:
    """How pipelines of fleets may run: every memory strategy and schedule that the instance allows.

    They keep whole optimizer states.
    """
    return [
        Strategy(micro_batch=micro_batch, recompute=ways, schedule=schedule)
        for ways in recompute_ways(instance, zero=0)
        for schedule in plain_schedules(instance.search)
    ]


class Departure(NamedTuple):
    """The first fields of a config that none of the plan space has beside those before them."""

    fields: tuple[str, ...]
    values: tuple[object, ...]
    allowed: list[tuple[object, ...]]
    before: list[str]


class _Fields(NamedTuple):
    """Those of a config, chosen one level after the other: plain, as a listing tries many."""

    nodes_used: Nodes
    degrees: tuple[Degrees, ...] = ()
    dp: int = 1
    pp: int = 1
    ep: int = 1
    etp: Literal[1] | None = None
    zero: ZeroStage = 0
    optimizer_instances: int = 1
    micro_batch: int = 1
    sync_each_batch: bool = True
    schedule: ScheduleName = "1f1b"
    vpp: int = 1
    microbatch_group: int | None = None
    recompute: tuple[Recompute, ...] = ("none",)

    @property
    def config(self) -> Configuration:
        """The configuration with these fields."""
        return Configuration(**self._asdict())


#: Fields of a configuration that are chosen together, and what they may be beside the fields
#: before.
_Level = tuple[tuple[str, ...], Callable[[_Fields], Iterable[tuple[Any, ...]]]]


@dataclass(frozen=True)
class PlanSpace:
    """Every choice of nodes, and every configuration on them, that an instance allows.

    The choices of a level depend on the nodes used, those of the instance that is `on` them, and on
    fields of the levels before alone.
    """

    instance: Instance

    def departure(self, config: Configuration) -> Departure | None:
        """Where a configuration leaves the plan space; None for one of `configs`."""
        vector = config.nodes_used
        if len(vector) != len(self.instance.cluster.groups) or not may_use(self.instance, vector):
            return Departure(("nodes_used",), (vector,), [], [])
        chosen = _Fields(**{name: getattr(config, name) for name in _Fields._fields})
        before = ["nodes_used"]
        for fields, choices in PlanSpace(self.instance.on(vector))._levels:
            values, allowed = tuple(getattr(config, name) for name in fields), list(choices(chosen))
            if values not in allowed:
                return Departure(fields, values, allowed, before)
            before += fields
        return None

    @cached_property
    def _levels(self) -> Sequence[_Level]:
        """Fields, and their choices: those that take longest to tell before there are many.

        In the order in which they are chosen. Of a field alone `zip` makes tuples of one value.
        """
        instance, search = self.instance, self.instance.search
        # A configuration is built to ask of a field only where several values are listed
        grouped, keeps = search.optimizer_instances != (1,), search.sync_each_batch != (True,)
        return (
            (("degrees",), lambda chosen: zip(self._degrees(chosen.nodes_used))),
            (("dp", "pp"), self._pipelines),
            (("ep", "etp"), self._experts),
            (("zero",), lambda chosen: zip(zero_choices(instance, chosen.config))),
            (
                ("optimizer_instances",),
                lambda chosen: zip(shard_choices(instance, chosen.config) if grouped else [1]),
            ),
            (("micro_batch",), lambda chosen: zip(self._micro_batches(chosen))),
            (
                ("sync_each_batch",),
                lambda chosen: zip(sync_choices(instance, chosen.config) if keeps else [True]),
            ),
            (("schedule", "vpp", "microbatch_group"), self._schedules),
            (("recompute",), lambda chosen: zip(recompute_ways(instance, chosen.zero))),
        )

    def completed(self, chosen: _Fields, level: int) -> Iterator[Configuration]:
        """All configurations that are decided as this one on the levels before."""
        if level == len(self._levels):
            yield chosen.config
            return
        fields, choices = self._levels[level]
        for values in choices(chosen):
            further = chosen._replace(**dict(zip(fields, values, strict=True)))
            yield from self.completed(further, level + 1)

    def _degrees(self, vector: Nodes) -> Iterator[tuple[Degrees, ...]]:
        """By node group; none of a configuration in which stages have their own.

        These stand in one zone, and no ranks share experts or sequences.
        """
        yield from group_degrees(self.instance, vector)
        search = self.instance.search
        plain = 1 in search.context_parallel and 1 in search.expert_parallel
        plain &= "tp" in search.expert_tensor_parallel and not self.instance.cluster.has_zones
        if search.degrees == "per_stage" and plain:
            yield ()

    def _pipelines(self, chosen: _Fields) -> Iterator[tuple[int, int]]:
        """Pairs (dp, pp) that fill all slots with enough layers for pp stages, and micro-batches.

        Where stages have degrees of their own, several of them in slots as small as any.
        """
        instance, longest = self.instance, longest_pipeline(self.instance)
        nodes = list(zip(chosen.nodes_used, instance.cluster.groups, strict=True))
        if chosen.degrees:
            pairs = zip(nodes, chosen.degrees, strict=True)
            slots = sum(n * (group.gpus_per_node // own.width) for (n, group), own in pairs)
            filling = ((slots // pp, pp) for pp in range(1, min(slots, longest) + 1))
            choices = ((dp, pp) for dp, pp in filling if dp * pp == slots)
        else:
            used = [(n, group) for n, group in nodes if n]
            widths = [own.width for _, group in used for own in slot_degrees(instance, group, 1)]
            gpus = sum(n * group.gpus_per_node for n, group in used)
            slots = gpus // min(widths) if widths else 0
            degrees = range(1, slots // 2 + 1)
            choices = ((dp, pp) for dp in degrees for pp in range(2, min(longest, slots // dp) + 1))
        replicas, stages = instance.search.data_parallel, instance.search.pipeline_parallel
        for dp, pp in choices:
            listed = (replicas is None or dp in replicas) and (stages is None or pp in stages)
            if listed and any(self._micro_batches(chosen._replace(dp=dp))):
                yield dp, pp

    def _experts(self, chosen: _Fields) -> Iterator[tuple[int, Literal[1] | None]]:
        """Pairs of GPUs that may share the experts of a stage, and that split each: `Config.etp`.

        On node groups with equal degrees in one zone, in several zones those of a node alone;
        beside tensor groups only where these split the sequence (Megatron-LM, arguments.py); not on
        joined nodes.
        """
        if not chosen.degrees:
            yield 1, None
            return
        instance, search = self.instance, self.instance.search
        experts, cluster = instance.workload.experts, instance.cluster
        used = [j for j, count in enumerate(chosen.nodes_used) if count]
        first, wide = chosen.degrees[used[0]], any(chosen.degrees[j].tp > 1 for j in used)
        free = all(chosen.degrees[j] == first for j in used) and not cluster.has_joined_nodes
        free &= instance.splits_sequence(first.tp) or not wide
        pairs: list[tuple[int, Literal[1] | None]] = []
        if "tp" in search.expert_tensor_parallel or not wide:
            pairs = [(ep, None) for ep in search.expert_parallel if ep == 1 or free]
        if 1 in search.expert_tensor_parallel and wide and free and experts:
            pairs += [(ep, 1) for ep in search.expert_parallel]
        for ep, etp in pairs:
            lanes = etp or first.tp
            divides = experts % ep == 0 and chosen.dp * first.width // lanes % ep == 0
            in_zone = len({cluster.groups[j].zone for j in used}) == 1
            in_nodes = all(cluster.groups[j].gpus_per_node // lanes % ep == 0 for j in used)
            if (ep == 1 or experts > 0) and divides and (in_zone or in_nodes):
                yield ep, etp

    @cached_property
    def _sizes(self) -> list[int]:
        return micro_batches(self.instance)

    def _micro_batches(self, chosen: _Fields) -> Iterator[int]:
        """Every replica has a micro-batch, equally many if even; parts divide it.

        Not where the plan space has the same plans of n times more replicas in place of parts.
        Where n divides the parts of all slots, each of their n shares is a replica of its own, of
        micro-batches of 1 / n of the sequences, on the same GPUs with the same rings.
        """
        pairs = zip(chosen.degrees, chosen.nodes_used, strict=False)
        parts, dp = [degrees.parts for degrees, count in pairs if count], chosen.dp
        even = not chosen.degrees or self.instance.search.micro_batches == "even"
        listed, common = self.instance.search.data_parallel, gcd(*parts)
        twins = [
            n
            for n in range(2, common + 1)
            if common % n == 0 and (listed is None or dp * n in listed)
        ]
        for b in self._sizes:
            total = self.instance.workload.global_batch // b
            fits = total >= dp and not (even and total % dp) and not any(b % n for n in parts)
            if fits and not any(b // n in self._sizes for n in twins):
                yield b

    def _schedules(self, chosen: _Fields) -> Iterator[tuple[ScheduleName, int, int | None]]:
        """Schedules with their `Chunking`; plain ones where every stage has its own degrees.

        Interleaving needs several devices, a block per chunk, and groups as Megatron-LM asks.
        """
        search, pp, longest = self.instance.search, chosen.pp, _most_chunks(self.instance)
        share = self.instance.workload.global_batch // chosen.micro_batch // chosen.dp
        sizes = [None if size == "pp" else size for size in search.microbatch_group]
        for schedule in search.schedule if chosen.degrees else plain_schedules(search):
            if not SCHEDULES[schedule].interleaves:
                yield schedule, 1, None
            elif search.micro_batches == "even" and pp > 1:
                chunks = [v for v in search.virtual_pipeline if pp * v <= longest]
                groups = sizes_of_groups(pp, share, sizes)
                yield from ((schedule, v, group) for v in chunks for group in groups)


def configs(instance: Instance, check: Check = lambda: None) -> Iterator[Configuration]:
    """The whole plan space; `check` as of `node_vectors`."""
    for vector in node_vectors(instance, check):
        yield from configs_of(instance, vector)


def configs_of(instance: Instance, vector: Nodes) -> Iterator[Configuration]:
    """All configurations that use exactly these nodes."""
    return PlanSpace(instance.on(vector)).completed(_Fields(vector), 0)
