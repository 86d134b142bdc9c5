"""What machines cost in a cloud, from the tables of SkyPilot.

A table `CLOUD/vms.csv` of SkyPilot's catalogue (schema 5) has an offer per line, prices in
USD per hour of an instance: https://github.com/skypilot-org/skypilot-catalog.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from formulations.errors import InstanceError
from formulations.instance.documents import csv_rows
from formulations.instance.record import shown
from solver.setup.first_instance import Machines, catalogue_name

_COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "SpotPrice", "Region")
_TABLE = f"a table vms.csv of SkyPilot's catalogue, with the columns {', '.join(_COLUMNS)}"
_MIB = re.compile(r"SizeInMiB\D+(\d+)")


class Offer(NamedTuple):
    """An instance type of a region. USD per hour; spot: None where it is not offered so."""

    usd_per_hour: float
    spot_usd_per_hour: float | None
    instance_type: str
    region: str
    gpus: int
    gpu: str  #: a name of the catalogue


def read_offers(path: Path, names: Iterable[str]) -> Iterator[Offer]:
    """Every offer with GPUs of the catalogue and a price. Raises InstanceError for another file."""
    names = tuple(names)

    @cache
    def gpu_of(accelerator: str, memory_mib: str) -> str | None:
        with suppress(InstanceError):
            size = f"-{round(int(memory_mib) / 1024)}GB" if memory_mib else ""
            return catalogue_name(accelerator + size, names, "")
        return None

    header, *table = csv_rows(path, _TABLE) or [[]]
    if lacking := [name for name in _COLUMNS if name not in header]:
        raise InstanceError(f"{path}:1", f"no column {lacking[0]}", _TABLE)
    for line, fields in enumerate(table, 2):
        row = dict(zip(header, fields, strict=False))
        memory = _MIB.search(row.get("GpuInfo") or row.get("GPUInfo") or "")
        gpu = gpu_of(row.get("AcceleratorName", ""), memory[1] if memory else "")
        if gpu is None or not row.get("Price"):
            continue
        try:
            price, gpus = float(row["Price"]), float(row["AcceleratorCount"])
            spot = float(row["SpotPrice"]) if row.get("SpotPrice") else None
        except ValueError as error:
            raise InstanceError(f"{path}:{line}", str(error), "numbers") from None
        if gpus.is_integer() and isfinite(price) and price > 0:
            offered = spot if spot and isfinite(spot) else None
            yield Offer(price, offered, row["InstanceType"], row["Region"], int(gpus), gpu)


def with_prices(
    path: Path, machines: Sequence[Machines], names: Iterable[str], region: str | None
) -> list[Machines]:
    """The machines with what they cost in one region, that where all together cost least.

    Raises InstanceError where no region, or not the one that is named, has them all.
    """
    cheapest: dict[str, dict[tuple[int, str], Offer]] = {}  # by region and kind of machine
    spots: dict[tuple[str, str], float] = {}  # by region and instance type, of its cheapest zone
    for offer in read_offers(path, names):
        kinds = cheapest.setdefault(offer.region, {})
        kind = offer.gpus, offer.gpu
        kinds[kind] = min(kinds.get(kind, offer), offer, key=lambda each: each.usd_per_hour)
        if offer.spot_usd_per_hour is not None:
            place = offer.region, offer.instance_type
            spots[place] = min(spots.get(place, offer.spot_usd_per_hour), offer.spot_usd_per_hour)
    needed = {(kind.gpus_per_node, kind.gpu): kind for kind in machines}
    if region is not None and region not in cheapest:
        raise InstanceError("--region", shown(region), ", ".join(sorted(cheapest)) or _TABLE)
    offered = {k for name, kinds in cheapest.items() if region in (None, name) for k in kinds}
    for gpus, gpu in needed:
        if (gpus, gpu) not in offered:
            nodes = ", ".join(f"{n}x{name}" for n, name in sorted(offered, key=lambda k: k[::-1]))
            raise InstanceError(str(path), f"no offer of {gpus}x{gpu}", nodes or _TABLE)

    def usd_per_hour(name: str) -> float:
        kinds = cheapest[name]
        return sum(
            kind.nodes * kinds[kind.gpus_per_node, kind.gpu].usd_per_hour for kind in machines
        )

    complete = [
        n for n, kinds in cheapest.items() if region in (None, n) and needed.keys() <= kinds.keys()
    ]
    if not complete:
        allowed = "machines of one region; write prices into the instance for others"
        raise InstanceError(str(path), "no region that offers all of these machines", allowed)
    chosen = cheapest[min(complete, key=usd_per_hour)]

    def priced(kind: Machines) -> Machines:
        offer = chosen[kind.gpus_per_node, kind.gpu]
        lines = [
            f"price: {offer.usd_per_hour:.4f} USD/h  # {offer.instance_type} in {offer.region}"
        ]
        spot = spots.get((offer.region, offer.instance_type))
        if spot is not None:
            rate = "# the rate is an example: ask your provider"
            lines.append(f"# spot: {{price: {spot:.4f} USD/h, preemptions: 0.1 /h}}  {rate}")
        return replace(kind, price=tuple(lines))

    return [priced(kind) for kind in machines]
