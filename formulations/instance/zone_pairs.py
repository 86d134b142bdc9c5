"""What may be wrong with the zones that node groups stand in, and with the links between them."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

ZoneNames = tuple[str, str]


class ZoneFault(NamedTuple):
    """What is wrong with the zones of a cluster: the field's path, what was found, what may be."""

    path: tuple[str | int, ...]
    found: str
    allowed: str


def zone_faults(
    zones: Sequence[str | None], default: bool, pairs: Sequence[ZoneNames]
) -> Iterator[ZoneFault]:
    """The faults of the groups' zones, and of their links.

    default: there is a link for all pairs of zones that are not named; pairs: those that are.
    """
    named = list(dict.fromkeys(zone for zone in zones if zone is not None))
    if named and None in zones:
        given = next(j for j, zone in enumerate(zones) if zone is not None)
        found = f"missing, but groups[{given}] stands in zone {named[0]!r}"
        path = "groups", zones.index(None), "zone"
        yield ZoneFault(path, found, "a zone for every group, or for none")
    elif len(named) < 2 and (default or pairs):
        field = "zone_link" if default else "zone_links"
        where = f"all groups stand in zone {named[0]!r}" if named else "no group names a zone"
        allowed = f"no {field}, or groups in two zones or more"
        yield ZoneFault((field,), f"a link between zones, but {where}", allowed)
    else:
        yield from _pair_faults(named, pairs)
        if not default:
            yield from _missing(named, pairs)


def _pair_faults(named: Sequence[str], pairs: Sequence[ZoneNames]) -> Iterator[ZoneFault]:
    known: dict[frozenset[str], int] = {}
    for i, pair in enumerate(pairs):
        path = "zone_links", i, "zones"
        for end, zone in enumerate(pair):
            if zone not in named:
                found = f"{zone!r}, in which no group stands"
                yield ZoneFault((*path, end), found, ", ".join(named))
        if pair[0] == pair[1]:
            yield ZoneFault(path, f"{pair[0]!r} with itself", "two different zones")
        elif (first := known.setdefault(frozenset(pair), i)) != i:
            found = f"{pair[0]} and {pair[1]}, as in zone_links[{first}]"
            yield ZoneFault(path, found, "every pair of zones once, in either order")


def _missing(named: Sequence[str], pairs: Sequence[ZoneNames]) -> Iterator[ZoneFault]:
    if not pairs and len(named) > 1:
        found = f"missing, but the groups stand in the zones {', '.join(named)}"
        yield ZoneFault(("zone_link",), found, "bandwidth and latency of the link between zones")
        return
    joined = set(map(frozenset, pairs))
    apart = next((pair for pair in combinations(named, 2) if frozenset(pair) not in joined), None)
    if apart:
        found = f"missing, but zone_links names none between {apart[0]} and {apart[1]}"
        yield ZoneFault(
            ("zone_link",), found, "the link of all pairs that zone_links does not name"
        )
