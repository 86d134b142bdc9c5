"""Traffic of a step: how full each link is, who sends what where, what crosses between zones."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from formulations.costs.traffic import Flow, Kind, Link, Load, traffic
from formulations.instance.machines import NOT_STATED
from solver.document import PlanDocument
from solver.plan_figures import plan_of
from solver.report.layout import Grid, Lines
from solver.report.naming import WORDS
from solver.report.quantities import node_ranges, percent, ranges, significant, size_text, time_text

Loads = Mapping[Flow, Load]
#: Links that carry as much, and by kind what each of them carries.
LinkRow = tuple[str, Mapping[Kind, Load]]
_PLACES = {"out": "out of {}", "in": "into {}", "inside": "in {}, each GPU of stage {}"}


def loads_of(document: PlanDocument) -> Loads:
    """All that crosses links in a step of a document's plan."""
    return traffic(document.instance, plan_of(document))


def link_rows(document: PlanDocument, loads: Loads) -> list[LinkRow]:
    """All links that carry something, fullest first; those of nodes alike stand together."""
    cluster, of_links = document.instance.cluster, defaultdict[Link, dict[Kind, Load]](dict)
    for flow, load in loads.items():
        of_kind = of_links[flow.link]
        of_kind[flow.kind] = of_kind.get(flow.kind, Load()).more(*load)
    # By where they lie and what they carry; the nodes
    alike: dict[tuple[Link, tuple[tuple[Kind, Load], ...]], list[str]] = defaultdict(list)
    rows = list[LinkRow]()
    for link, of_kind in of_links.items():
        if link.to is not None:
            rows.append((f"{cluster.zones[link.place]} to {cluster.zones[link.to]}", of_kind))
        else:
            carried = (*of_kind.items(),)
            alike[_of_any_node(link), carried].append(cluster.node_names[link.place])
    for (link, carried), names in alike.items():
        places = node_ranges(dict.fromkeys(names))
        rows.append((_PLACES[link.way].format(places, link.stage), dict(carried)))
    return sorted(rows, key=lambda row: -sum(load.busy_s for load in row[1].values()))


def overfull(document: PlanDocument, loads: Loads) -> Lines:
    """The fullest link, if it is busy for longer than the step, as the model lets it be."""
    name, of_kind = next(iter(link_rows(document, loads)), ("", {}))
    busy_s, step_s = sum(load.busy_s for load in of_kind.values()), document.step_time_s or 0.0
    if busy_s > step_s:
        busy = f"{time_text(busy_s, step_s)}, {percent(busy_s / step_s)} of the step"
        waits = "messages that pass side by side in the model would have to wait"
        yield "overfull", f"{name} would be busy for {busy}: {waits}"


def link_table(rows: Sequence[LinkRow], step_s: float) -> Grid:
    """What every link carries in a step, and how full it is of it."""
    words, lines = WORDS["traffic"], []
    for name, of_kind in rows:
        sizes = [f"{words[kind]} {size_text(load.size_bytes)}" for kind, load in of_kind.items()]
        busy_s = sum(load.busy_s for load in of_kind.values())
        lines.append((name, ", ".join(sizes), time_text(busy_s, step_s), percent(busy_s / step_s)))
    return Grid(("link, one way", "carries in a step"), ("busy", "of the step"), lines)


def flow_table(document: PlanDocument, loads: Loads) -> Grid:
    """Who sends what where: stages and nodes, and how much each node, or GPU inside one, sends."""
    names, lines = document.instance.cluster.node_names, []
    alike: dict[tuple[Flow, float], list[Flow]] = defaultdict(list)
    for flow, load in loads.items():
        if flow.link.way in ("out", "inside"):
            of_any_node = flow._replace(link=_of_any_node(flow.link), to_node=None)
            alike[of_any_node, load.size_bytes].append(flow)
    for (flow, size_bytes), flows in alike.items():
        senders = node_ranges(dict.fromkeys(names[each.link.place] for each in flows))
        nodes = dict.fromkeys(each.to_node for each in flows)
        receivers = node_ranges(names[node] for node in nodes if node is not None)
        inside = flow.link.way == "inside"
        to = "in the node" if inside else receivers or "from node to node in a ring"
        size = f"{size_text(size_bytes)} per {'GPU' if inside else 'node'}"
        places = f"stage {flow.stage}, {senders}", f"stage {flow.to_stage}, {to}"
        lines.append((WORDS["traffic"][flow.kind], *places, size))
    return Grid(("what", "from", "to"), ("sent per step",), lines)


def _of_any_node(link: Link) -> Link:
    return link._replace(place=0, replica=None)


def zone_lines(document: PlanDocument, loads: Loads) -> Lines:
    """One line per pair of zones that anything crosses between; empty without zones."""
    cluster, config = document.instance.cluster, document.config
    if not cluster.has_zones or config is None:
        return
    # Stages of which something crosses between two zones, by the zones' numbers and what it is
    crossings: dict[tuple[int, int], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for kind, stage, to_stage, link, _ in loads:
        after = to_stage == stage + 1 or (config.vpp > 1 and to_stage == 0)
        what = {"transfers": "activations after" * after, "sync": "gradients of"}.get(kind)
        if link.to is not None and what:
            pair = min(link.place, link.to), max(link.place, link.to)
            crossings[pair][what].add(stage)
    if not crossings:
        yield "zones", "nothing crosses"
    for i, (pair, crossing) in enumerate(sorted(crossings.items())):
        names = [cluster.zones[zone] for zone in pair]
        joint = cluster.link_between(*names)
        what = ", ".join(
            f"{name} stage{'s' * (len(stages) > 1)} {ranges(stages)}"
            for name, stages in sorted(crossing.items())
        )
        speed = f"{significant(joint.bandwidth_bytes_per_s * 8 / 1e9)} Gbit/s"
        source = f"by {joint.source}" if joint.source == NOT_STATED else f"({joint.source})"
        figures = f"{speed}, {time_text(joint.latency_s)}, {joint.kind} {source}"
        yield "" if i else "zones", f"{names[0]} to {names[1]}: {what}; {figures}"
