"""Prices of machines from a table of SkyPilot's catalogue."""

from pathlib import Path

import pytest

from formulations.instance.load import load_instance
from formulations.instance.machines import gpu_catalogue
from solver.setup.first_instance import Machines
from solver.setup.offers import with_prices
from tests.command_line import output, run
from tests.conftest import ROOT
from tests.refusals import refusal

TABLE = ROOT / "tests" / "data" / "skypilot_vms.csv"
GPUS = tuple(gpu_catalogue())
A100S, A10GS = Machines(2, 8, "A100-40"), Machines(4, 4, "A10G")


def test_all_machines_stand_in_the_cheapest_region_that_has_them(tmp_path: Path) -> None:
    """eu-west-1 has cheaper A100s and no A10G; of two types of 4 A10G the cheaper one."""
    out = tmp_path / "x.yaml"
    nodes = ("--nodes", "2x8xA100-40", "--nodes", "4x4xA10G", "--model", "gpt2")
    output("init", *nodes, "--skypilot", TABLE, "--out", out)
    assert [g.price_usd_per_hour for g in load_instance(out).cluster.groups] == [32.7726, 5.672]
    spot = "# spot: {price: 8.5000 USD/h,"  # of the cheapest zone
    assert spot in out.read_text(encoding="utf-8")
    (alone,) = with_prices(TABLE, [A100S], GPUS, None)
    assert alone.price == ("price: 31.0000 USD/h  # p4d.24xlarge in eu-west-1",)
    (named,) = with_prices(TABLE, [A100S], GPUS, "us-east-1")
    assert named.price[0] == "price: 32.7726 USD/h  # p4d.24xlarge in us-east-1"


@pytest.mark.parametrize(
    ("machines", "region", "message"),
    [
        ((Machines(1, 8, "H100"),), None, "no offer of 8xH100; allowed: 4xA10G, 8xA100-40, 8xA1"),
        ((Machines(1, 8, "A100-80"),), "us-east-1", "no offer of 8xA100-80; allowed: 4xA10G, 8x"),
        ((A100S, Machines(1, 8, "A100-80")), None, "no region that offers all of these machines"),
        ((A100S,), "mars", "--region: 'mars'; allowed: eu-west-1, us-east-1, us-west-2"),
    ],
)
def test_machines_without_a_price_are_refused(
    machines: tuple[Machines, ...], region: str | None, message: str
) -> None:
    assert message in refusal(lambda: with_prices(TABLE, machines, GPUS, region))


def test_other_tables_are_refused_with_their_line(tmp_path: Path) -> None:
    table, text = tmp_path / "vms.csv", TABLE.read_text(encoding="utf-8")
    for changed, message in (
        ("a,b\n1,2\n", "vms.csv:1: no column InstanceType; allowed: a table vms.csv of SkyPilot"),
        (text.replace("31.0", "free"), "vms.csv:4: could not convert string to float: 'free'"),
        (text.splitlines()[0], "vms.csv: no offer of 8xA100-40; allowed: a table vms.csv"),
    ):
        table.write_text(changed, encoding="utf-8")
        assert message in refusal(lambda: with_prices(table, [A100S], GPUS, None))
    options = ("--model", "gpt2", "--nodes", "8xA10", "--region", "x", "--out", tmp_path / "y.yaml")
    code, _, error = run("init", *options)
    assert (code, "--skypilot FILE is missing" in error) == (2, True)
