"""Promises of solver.setup.written: what is known, and what is assumed, in comments."""

from pathlib import Path

import yaml

from formulations.instance.catalogue import gpu_catalogue
from solver.setup.machines import Machines
from solver.setup.written import Training, assumed_network, instance_text

GPUS = gpu_catalogue()


def test_networks_are_those_of_whole_systems_of_eight() -> None:
    """Of others, that of many clouds."""
    assert assumed_network(Machines(2, 8, "H100")) == ("InfiniBand 8x NDR", "a DGX H100")
    for machines in (Machines(2, 4, "H100"), Machines(2, 8, "A10")):
        assert assumed_network(machines)[0] == "Ethernet 100G"


def test_text_of_an_instance() -> None:
    """A path from the file's folder; groups of one type are numbered; fp16 where bf16 lacks."""
    machines = [Machines(2, 4, "V100-16"), Machines(1, 4, "V100-16", "40 Gbit/s")]
    model = Path("/m/llama/config.json")
    text = instance_text(Training(model, 128, 8), machines, GPUS, Path("/m/plans"))
    fields = yaml.safe_load(text)
    assert (fields["name"], fields["workload"]["huggingface"]) == ("llama", "../llama/config.json")
    assert fields["workload"]["precision"] == "fp16"
    first, second = fields["cluster"]["groups"]
    assert (first["name"], second["name"]) == ("v100-16", "v100-16-2")
    assert (first["inter_node"], second["inter_node"]) == ("Ethernet 100G", "40 Gbit/s")
    assert "# assumed, as machines of many clouds" in text


def test_one_node_needs_no_network() -> None:
    text = instance_text(Training("gpt2", 128, 8), [Machines(1, 8, "H100")], GPUS, Path())
    fields = yaml.safe_load(text)
    assert fields["workload"]["catalogue"] == "gpt2"
    assert "inter_node" not in fields["cluster"]["groups"][0]
