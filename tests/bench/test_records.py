"""What records of benchmarks say of plans."""

from bench.records import config_text
from formulations.plan import Degrees
from tests.small_instances import plain_config


def test_bug_tables_died_of_configs_with_degrees_per_group() -> None:
    """Records have the configuration as plan files do; old ones have one tensor degree."""
    degrees = (Degrees(tp=2), Degrees(tp=1, parts=4))
    config = plain_config((1, 1), degrees=degrees, dp=2, pp=4, micro_batch=8)
    assert config_text(config.model_dump(mode="json")) == "2 / 1*4 x 2 x 4, 8"
    chunks = config.but(vpp=2, degrees=degrees[:1] * 2)
    assert config_text(chunks.model_dump(mode="json")) == "2 x 2 x 4 x 2, 8"
    assert config_text({"tp": 1, "dp": 2, "pp": 4, "micro_batch": 8}) == "1 x 2 x 4, 8"
    assert config_text(None) == ""
