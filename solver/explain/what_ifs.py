"""Changes of an instance that a user could pay for, undo, or ask another team for.

Each changed instance is solved again, with its proof: what does the change bring?
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations

from formulations.costs.plan_costs import plan_costs
from formulations.costs.renting import chooses_terms, rent_usd_per_hour
from formulations.errors import PlannerError
from formulations.instance import Instance
from formulations.instance.machines import Link
from formulations.instance.node_group import NodeGroup
from formulations.instance.targets import TARGETS
from formulations.plan import Configuration, Plan
from formulations.space import PlanSpace
from formulations.space.configurations import recompute_ways
from formulations.space.launch import able, obstacles, recomputed_blocks, widened
from solver.document import PlanDocument
from solver.files import table_beside
from solver.interrupt import Deadline
from solver.options import SolveOptions
from solver.plan_figures import plan_of
from solver.result import Answer, Status, longest_step_ns, objective_weight
from solver.search.driver import solve
from solver.simulate import step_time_ns


@dataclass(frozen=True)
class WhatIf:
    """A change in words, and the instance with it. priced: whether its prices say what it costs."""

    change: str
    instance: Instance
    priced: bool = True


def what_ifs(instance: Instance) -> Iterator[WhatIf]:
    """Machines first, then links, terms and memory, the batch, the target, single strategies."""
    groups = instance.cluster.groups
    for j, group in enumerate(groups):
        kind = f"{group.gpus_per_node} {group.gpu.name}"
        more = [*groups[:j], group.but(nodes=group.nodes + 1), *groups[j + 1 :]]
        change = f"one more node of {kind} ({group.name})"
        yield WhatIf(change, _with_groups(instance, more), priced=group.price_usd_per_hour > 0)
    for j, group in enumerate(groups):
        if others := [*groups[:j], *groups[j + 1 :]]:
            yield WhatIf(f"without {group.name}", _with_groups(instance, others))
    yield from _links(instance)
    if chooses_terms(instance):  # on which nodes are rented
        steady, rarer = [], []
        for group in groups:
            offered = group.spot is None or group.spot.only
            steady.append(group if offered else group.but(spot=None))
            half = group.spot and {"preemptions_per_hour": group.spot.preemptions_per_hour / 2}
            rarer.append(group.but(spot=half) if half else group)
        where = "on demand alone, where it is offered"
        for change, changed in ((where, steady), ("half as many preemptions", rarer)):
            if changed != [*groups]:
                yield WhatIf(change, _with_groups(instance, changed), priced=changed is steady)
    roomier = (group.but(gpu={"memory_bytes": 2 * group.gpu.memory_bytes}) for group in groups)
    yield WhatIf("twice the memory on every GPU", _with_groups(instance, roomier), priced=False)
    batch, odd = divmod(instance.workload.global_batch, 2)
    if not odd:
        change = f"half the batch, {batch} sequences, for each of them"
        yield WhatIf(change, instance.with_batch(batch), priced=False)  # another training
    yield from _strategies(instance)


def _with_groups(instance: Instance, groups: Iterable[NodeGroup]) -> Instance:
    return instance.but(cluster=instance.cluster.with_groups([*groups]))


def _links(instance: Instance) -> Iterator[WhatIf]:
    cluster, groups = instance.cluster, instance.cluster.groups
    if sum(group.nodes for group in groups) > 1:
        yield from _doubled(instance, "inter_node", "between nodes", range(len(groups)))
    inside = [j for j, group in enumerate(groups) if group.gpus_per_node > 1]
    yield from _doubled(instance, "intra_node", "inside nodes", inside)
    # Each link between zones, twice as fast between all pairs that have it
    links = cluster.links_among(range(len(groups))) if cluster.has_zones else ()
    for link in links:
        swap = {link: link.but(bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s)}
        pairs = tuple(pair.but(link=swap.get(pair.link, pair.link)) for pair in cluster.zone_links)
        default = cluster.zone_link and swap.get(cluster.zone_link, cluster.zone_link)
        wider = cluster.model_copy(update={"zone_link": default, "zone_links": pairs})
        joined = (
            f"{first} and {second}"
            for first, second in combinations(cluster.zones, 2)
            if cluster.link_between(first, second) == link
        )
        between = f"zones {', '.join(joined)}" if len(links) > 1 else "zones"
        change = f"twice the bandwidth between {between}"
        yield WhatIf(change, instance.but(cluster=wider), priced=False)


def _doubled(instance: Instance, field: str, where: str, having: Sequence[int]) -> Iterator[WhatIf]:
    """Each link that some groups have, twice as fast in all of these groups."""
    groups = instance.cluster.groups
    alike = dict[tuple[float, float], dict[int, Link]]()  # faster ones, by what links can do today
    for j in having:
        link: Link = getattr(groups[j], field)
        faster = link.but(bandwidth_bytes_per_s=2 * link.bandwidth_bytes_per_s)
        alike.setdefault((link.bandwidth_bytes_per_s, link.latency_s), {})[j] = faster
    for links in alike.values():
        wider = [
            group.model_copy(update={field: links[j]}) if j in links else group
            for j, group in enumerate(groups)
        ]
        whose = f" of {', '.join(groups[j].name for j in links)}" if len(alike) > 1 else ""
        change = f"twice the bandwidth {where}{whose}"
        yield WhatIf(change, _with_groups(instance, wider), priced=False)


_STRATEGIES = table_beside("solver.explain", "simpler.yaml")


def _strategies(instance: Instance) -> Iterator[WhatIf]:
    """The target's other choice, and each strategy that is allowed beside a simpler one, off."""
    search = instance.search
    for target in TARGETS:
        for added in widened(instance, target):
            change = f"all that {TARGETS[target].name} can launch"
            if target == "any":  # of what no framework has, not all goes together
                change = f"{', '.join(_STRATEGIES['wider'][field] for field in added)} (any target)"
            yield WhatIf(change, instance.but(search={"target": target, **added}))
    for change, field, simpler in _STRATEGIES["simpler"]:
        chosen, value = getattr(search, field), simpler
        another = chosen != simpler
        if isinstance(chosen, tuple):
            another, value = simpler in chosen and len(chosen) > 1, (simpler,)
        if another and (field != "recompute_per" or len(search.recompute) > 1):
            yield WhatIf(change, instance.but(search={field: value}))


def answers(
    document: PlanDocument, options: SolveOptions, tell: Callable[[int, int], None]
) -> Iterator[Answer]:
    """Every change of a plan's instance, solved within an equal share of the time that is left.

    A search starts from the plan that is explained, where that stays possible. After Ctrl-C there
    are no more.
    """
    instance, plan = document.instance, plan_of(document)
    objective = step_time_ns(plan_costs(instance, plan)) * objective_weight(instance, plan.config)
    rent = rent_usd_per_hour(instance, plan.config.nodes_used)
    changes, deadline = list(what_ifs(instance)), Deadline(options.time_limit_s)
    for i, change in enumerate(changes):
        tell(i, len(changes))
        left_s = deadline.left_s
        share_s = None if left_s is None else left_s / (len(changes) - i)
        start = kept(document, change.instance)
        best, bound, status, ended = start, None, None, None
        with suppress(PlannerError):  # too large a plan space, or one that has no costs
            result = solve(change.instance, replace(options, time_limit_s=share_s), start=start)
            bound, status, ended = result.bound, result.status, result.termination
            best = None if result.plan is None else (result.plan, result.step_time_ns or 0)
        if best is None:
            yield Answer(change.change, status or Status.UNKNOWN)
        else:
            # the share of the objective that the best plan saves for each sequence, and any may
            value = best[1] * objective_weight(change.instance, best[0].config)
            before, after = (
                changed.workload.global_batch for changed in (instance, change.instance)
            )
            least_saved, most_saved = (
                None if total is None else 1 - total / objective * before / after
                for total in (value, bound)
            )
            more = rent_usd_per_hour(change.instance, best[0].config.nodes_used) - rent
            costs = plan_costs(change.instance, best[0])
            yield Answer(
                change.change,
                status or Status.FEASIBLE,
                best[1] / 1e9,
                least_saved,
                most_saved,
                more if change.priced else None,
                float((costs.memory_bytes / costs.limit_bytes).max()),
                tuple(able(change.instance, best[0])),
            )
        if ended == "interrupted":
            return


def kept(document: PlanDocument, changed: Instance) -> tuple[Plan, int] | None:
    """The plan of a document in a changed instance, and its step time there in ns; None: it is not.

    On the same nodes, with the same groups and layers; replicas share another batch as they shared
    the first.
    """
    number = {name: n for n, name in enumerate(changed.cluster.node_names)}
    if document.config is None or not number.keys() >= {*document.node_order}:
        return None
    # The nodes of the same names, and as large a part of the batch per replica
    before, after = (each.workload.global_batch for each in (document.instance, changed))
    replicas = tuple(
        replica.replica(number).but(micro_batches=replica.micro_batches * after // before)
        for replica in document.replicas
    )
    order = tuple(number[name] for name in document.node_order)
    moved = Plan(config=document.config, node_order=order, replicas=replicas)
    config = _config_of(moved, document.instance, changed)
    if config is None:
        return None
    moved = moved.but(config=config)
    even = changed.search.micro_batches == "even"
    shares = [replica.micro_batches for replica in replicas]
    if config.micro_batch * sum(shares) != after or (even and len({*shares}) > 1):
        return None
    if obstacles(changed, moved, changed.search.target):
        return None
    costs = plan_costs(changed, moved)
    time_ns, longest_ns = step_time_ns(costs), longest_step_ns(changed, config.nodes_used)
    fits = bool((costs.memory_bytes <= costs.limit_bytes).all())
    return (moved, time_ns) if fits and time_ns <= (longest_ns or time_ns) else None


def _config_of(moved: Plan, instance: Instance, changed: Instance) -> Configuration | None:
    """The configuration of a plan as the changed plan space names it; None where that has none.

    moved: the plan on the nodes of the changed instance, with its configuration in the first one.
    """
    planned, groups = moved.config, changed.cluster.groups
    names = [group.name for group in instance.cluster.groups]
    # None where every stage has its own
    degrees = dict(zip(names, planned.degrees, strict=not planned.per_stage))
    nodes_used = Counter(changed.cluster.node_groups[node] for node in moved.node_order)
    ways = {stage.recomputed.way for replica in moved.replicas for stage in replica.stages}
    if any(blocks < of_stage for way, blocks, of_stage in recomputed_blocks(changed, moved)):
        ways |= {"none"}  # some of a stage's blocks are not recomputed
    for recompute in recompute_ways(changed, planned.zero):
        update = {
            "degrees": tuple(degrees[group.name] for group in groups if degrees),
            "nodes_used": tuple(nodes_used[j] for j in range(len(groups))),
            "recompute": recompute,
        }
        config = planned.model_copy(update=update)
        if ways <= {*recompute} and PlanSpace(changed).departure(config) is None:
            return config
    return None
