"""The fit finds figures that it can know, on times made by the model itself."""

import pytest

from bench.fitting import fit, pass_times
from bench.published_times import LayerTime, Observation, gpt
from formulations.instance import GpuType, Layer, Link
from formulations.instance.workload import Precision

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
GUESS = TRUE.model_copy(update=dict(zip(FIELDS, (0.4, 1e10, 1.8e-4), strict=True)))


def observations() -> list[Observation]:
    """Blocks from those that launches bound to those that products bound, 1 to 16 sequences."""
    truth = pass_times(TRUE, "fp16")
    found = []
    for hidden in (512, 1024, 2048, 4096, 8192):
        for b in (1, 4, 16):
            block = gpt(hidden, 16, 1, 1024, 128).layers[1]
            time = LayerTime(block, 1, b, backward=False, message_bytes=0, link=LINK)
            published_s = time.predicted_s(truth)
            found.append(Observation("made", f"h {hidden} b {b}", "X", "fp16", published_s, time))
    return found


def test_fit_recovers_the_figures_that_made_the_times() -> None:
    """From figures off by factors of 1.5 to 3, to one in a thousand."""
    found = fit(observations(), GUESS, FIELDS)
    assert [getattr(found, name) for name in FIELDS] == pytest.approx(
        [getattr(TRUE, name) for name in FIELDS], rel=1e-3
    )


def test_ramp_lasts_as_long_in_every_precision() -> None:
    """1 GFLOP, half 4 GFLOP, peak 180 and 90 TFLOP/s reached: 1/180 or 1/90 ms, and 4/180 ms."""
    layer = Layer(
        kind="block",
        is_block=True,
        sharded_parameters=0,
        replicated_parameters=0,
        forward_flops=10**9,
        kernels=1,
        replicated_activation_bytes=0,
        sharded_activation_bytes=0,
        input_bytes=0,
    )
    gpu = TRUE.but(launch_overhead_s=0.0)
    precisions: tuple[Precision, ...] = ("fp16", "tf32")
    found = [pass_times(gpu, precision)(layer, 1, 1) for precision in precisions]
    assert [passes.forward for passes in found] == pytest.approx([5e-3 / 180, 6e-3 / 180])
