"""What machines cost in a cloud, from the tables of SkyPilot.

A table `CLOUD/vms.csv` of SkyPilot's catalogue (schema 5) has an offer per line, prices in
USD per hour of an instance: https://github.com/skypilot-org/skypilot-catalog.
"""

import re
from collections.abc import Collection, Iterator, Sequence
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


def read_offers(path: Path, names: Collection[str]) -> Iterator[Offer]:
    """Every offer with GPUs of the catalogue and a price. Raises InstanceError for another file."""

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
    path: Path, machines: Sequence[Machines], names: Collection[str], region: str | None
) -> list[Machines]:
    """The machines with what they cost in one region, that where all together cost least.

    Raises InstanceError where no region, or not the one that is named, has them all.
    """
    offers = list(read_offers(path, names))
    regions = sorted({offer.region for offer in offers})
    if region not in (None, *regions):
        raise InstanceError("--region", shown(region), ", ".join(regions) or _TABLE)
    regions = regions if region is None else [region]
    offers = [offer for offer in offers if offer.region in regions]
    cheapest: dict[str, dict[str, Offer]] = {}  # by region, by kind of machine
    for offer in sorted(offers, key=lambda each: (each.region, each.usd_per_hour)):
        cheapest.setdefault(offer.region, {}).setdefault(f"{offer.gpus}x{offer.gpu}", offer)
    offered = set[str]().union(*cheapest.values())
    wanted = [f"{kind.gpus_per_node}x{kind.gpu}" for kind in machines]
    for missing in wanted:
        if missing not in offered:
            allowed = ", ".join(sorted(offered)) or _TABLE
            raise InstanceError(str(path), f"no offer of {missing}", allowed)
    having_all = (of_kind for of_kind in cheapest.values() if of_kind.keys() >= {*wanted})
    complete = [[of_kind[name] for name in wanted] for of_kind in having_all]
    if not complete:
        allowed = "machines of one region; write prices into the instance for others"
        raise InstanceError(str(path), "no region that offers all of these machines", allowed)

    def usd_per_hour(row: Sequence[Offer]) -> float:
        return sum(m.nodes * each.usd_per_hour for m, each in zip(machines, row, strict=True))

    def lines(chosen: Offer) -> tuple[str, ...]:
        usd, place = chosen.usd_per_hour, (chosen.instance_type, chosen.region)
        alike = (each for each in offers if (each.instance_type, each.region) == place)
        spots = [each.spot_usd_per_hour for each in alike if each.spot_usd_per_hour is not None]
        price = f"price: {usd:.4f} USD/h  # {' in '.join(place)}"
        if not spots:
            return (price,)
        rate = "# of its cheapest zone; the rate is an example: ask your provider"
        return price, f"# spot: {{price: {min(spots):.4f} USD/h, preemptions: 0.1 /h}}  {rate}"

    best = min(complete, key=usd_per_hour)
    pairs = zip(machines, best, strict=True)
    return [replace(kind, price=lines(offer)) for kind, offer in pairs]
