"""Promises of solver.setup.written: what is known, and what is assumed, in comments."""

from pathlib import Path

import yaml

from formulations.instance.catalogue import gpu_catalogue
from solver.setup.machines import Machines
from solver.setup.written import Training, assumed_network, instance_text
from tests.recorded import as_recorded, digest

GPUS = gpu_catalogue()


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
    one = instance_text(Training("gpt2", 128, 8), [Machines(1, 8, "H100")], GPUS, Path())
    assert "inter_node" not in yaml.safe_load(one)["cluster"]["groups"][0]
    whole, other = Machines(2, 8, "H100"), Machines(2, 4, "H100")
    assert assumed_network(whole) == ("InfiniBand 8x NDR", "a DGX H100")
    assert assumed_network(other)[0] == "Ethernet 100G"
    as_recorded("written", {"one": digest(one), "several": digest(text)})
