"""A small front, the best subsets of its nodes, and fleets before and after a failure."""

from functools import cache

from solver.clusters.front import TimeAndNodes
from solver.fleet_document import FleetDocument
from solver.fleets.fleet import next_fleet, start_fleet
from solver.fleets.recovery import Horizon
from solver.front_document import FrontDocument
from tests.random_fleets import even_designs, fleet_instance
from tests.small_families import SEEDS, found, searched, small_family

HOUR = Horizon(3600 * 10**9)


@cache
def front() -> FrontDocument:
    """A front of money with several points, found in 2 s."""
    return unsearched(found(SEEDS[0]))


@cache
def subsets() -> FrontDocument:
    """The best subsets of the same nodes."""
    family = small_family(SEEDS[0])
    return unsearched(searched(family, TimeAndNodes(family)))


def unsearched(document: FrontDocument) -> FrontDocument:
    """Whatever the search took, and by which means it closed its clusters."""
    clusters = tuple(cluster.but(closed_by="search") for cluster in document.clusters)
    return document.but(runtime_s=2.0, clusters=clusters)


@cache
def fleets() -> tuple[FleetDocument, FleetDocument, FleetDocument]:
    """Seven nodes, templates of two and three, one fault; without a node; with it again."""
    fleet = start_fleet(fleet_instance(7), even_designs(range(2, 4)), 1)
    lost = fleet.pipelines[0].nodes[0]
    after = next_fleet(fleet, [lost], [], HOUR)
    return fleet, after, next_fleet(after, [], [lost], HOUR)
