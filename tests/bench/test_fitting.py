"""The fit finds figures that it can know, on times made by the model itself."""

import pytest

from bench.calibrate import fit, pass_times
from bench.published_times import LayerTime, Observation, gpt
from formulations.instance import GpuType, Link

LINK = Link(bandwidth_bytes_per_s=1e11, latency_s=1e-6)
TRUE = GpuType(
    name="X",
    source="test",
    peak_flops={"fp16": 3e14, "tf32": 1.5e14},
    memory_bytes=1,
    memory_bandwidth_bytes_per_s=2e12,
    link=LINK,
    efficiency_maximum=0.6,
    efficiency_half_flops=4e9,
    launch_overhead_s=6e-5,
    efficiency_source="test",
)
FIELDS = ("efficiency_maximum", "efficiency_half_flops", "launch_overhead_s")


def observation(hidden: int, b: int) -> Observation:
    """The time that the true figures give a block of this width with b sequences."""
    block = gpt(hidden, 16, 1, 1024, 128).layers[1]
    time = LayerTime(block, 1, b, backward=False, message_bytes=0, link=LINK)
    return Observation("", "", "X", "fp16", time.predicted_s(pass_times(TRUE, "fp16")), time)


def test_fit_recovers_the_figures_that_made_the_times() -> None:
    """From figures off by factors of 1.5 to 3, to one in a thousand."""
    widths = (512, 1024, 2048, 4096, 8192)
    times = [observation(hidden, b) for hidden in widths for b in (1, 4, 16)]
    guess = TRUE.model_copy(update=dict(zip(FIELDS, (0.4, 1e10, 1.8e-4), strict=True)))
    fitted, true = ([getattr(g, f) for f in FIELDS] for g in (fit(times, guess, FIELDS), TRUE))
    assert fitted == pytest.approx(true, rel=1e-3)
