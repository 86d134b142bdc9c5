"""Promises of formulations.instance.transformer: the chain of layers, embedding and head."""

import pytest

from formulations.errors import InstanceError
from tests.architectures import GPT2, build, kinds_of_workloads
from tests.oracles.agreement import check_layers
from tests.recorded import as_recorded, digest


@pytest.mark.parametrize("seed", range(40, 64))
def test_chains_are_those_of_the_pages(seed: int) -> None:
    """FLOPs, parameters and all-reduces of every layer, prediction modules among them."""
    check_layers(seed)


def test_workloads_are_the_recorded_ones() -> None:
    """Every layer and all else of models of every kind, with the parameters published."""
    kinds = kinds_of_workloads()
    figures = {name: [work.parameters, digest(work)] for name, work in kinds.items()}
    as_recorded("transformer", figures)


def test_sequence_longer_than_position_table() -> None:
    build(GPT2, 1024)
    with pytest.raises(InstanceError, match=r"1025 on w with 1024 learned.*1 to 1024"):
        build(GPT2, 1025)
