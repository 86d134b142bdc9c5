"""How much slower the step that a rule would have picked is than the best measured one.

vTrain's single-node steps (726, on 1 to 8 A100) of the same model, GPUs and batch are a choice of
degrees and micro-batch. Rules: the analytic model; the same corrected by one measured step per
kernel shape (drawn at random, mean of several draws; errors are those of the steps not drawn) or by
all; Megatron-LM's takeaways (Narayanan et al. 2021, section 3: model-parallel sizes as small as
memory allows, tensor before pipeline, micro-batch as its equation of the step says, here by the
analytic model); FASOP's scaling (HPDC 2024, its code's microbatch_scale_factors on A100: layer
times measured at micro-batch 1, of BERT-large's width times fixed factors, of others in proportion
to the micro-batch).
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from bench.gpt_rows import GPUS_PER_NODE, VTRAIN_VOCABULARY
from bench.read_published import VtrainRow, vtrain_rows
from formulations.costs.compute import TimeColumns
from formulations.instance import Instance
from formulations.instance.load import parse_instance
from solver.evaluate.launched import run_of_degrees
from solver.evaluate.run_plan import planned
from solver.measure.calibration import Factors, Fit, Kernels, MeasuredStep, fit

DRAWS = 5
#: FASOP's factors of BERT-large's blocks by micro-batch; head, and GPT-2's layers: in proportion.
FASOP_WIDTH, FASOP_BLOCKS = 1024, {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.236}
TEXT = """
name: vtrain
workload:
  sizes: {{hidden_size: {h}, layers: {blocks}, heads: {heads}, vocabulary_size: {vocabulary},
    learned_positions: {s}}}
  sequence_length: {s}
  global_batch: {batch}
  precision: fp16
  gradient_precision: fp16
  flash_attention: false
cluster:
  groups: [{{name: node, gpu: A100-80, gpus_per_node: {gpus}, nodes: 1}}]
search: {{sequence_parallel: false}}
"""


class Choice(NamedTuple):
    """What was given when degrees and micro-batch were chosen."""

    h: int
    heads: int
    blocks: int
    s: int
    gpus: int
    batch: int


#: What is deemed to be shorter is less.
Order = Callable[[MeasuredStep], Any]
Seconds = Callable[[MeasuredStep], float]
Steps = Mapping[Choice, Sequence[MeasuredStep]]


@cache
def _instance(choice: Choice) -> Instance:
    text = TEXT.format(**choice._asdict(), vocabulary=VTRAIN_VOCABULARY)
    return parse_instance(text, "vtrain.yaml", Path())


def _step(row: VtrainRow) -> tuple[Choice, MeasuredStep]:
    gpus = row.tp * row.dp * row.pp
    choice = Choice(row.h, row.heads, row.blocks, row.s, gpus, row.batch)
    # without recomputation, see `bench.gpt_rows`
    text = f"tp={row.tp},dp={row.dp},pp={row.pp},micro_batch={row.b}"
    instance = _instance(choice)
    plan = planned(instance, run_of_degrees(text, instance), (0,)).plan
    return choice, MeasuredStep(instance, plan, row.measured_s)


def choices(reference: Path) -> Steps:
    """The steps of every choice."""
    found: dict[Choice, list[MeasuredStep]] = {}
    for row in vtrain_rows(reference, "single"):
        assert row.tp * row.dp * row.pp <= GPUS_PER_NODE
        choice, step = _step(row)
        found.setdefault(choice, []).append(step)
    return found


def regret(steps: Steps, seconds: Order) -> float:
    """Mean share by which the step that a rule deems shortest is longer than the shortest."""
    several = [own for own in steps.values() if len(own) > 1]
    return fmean(
        min(own, key=seconds).measured_s / min(step.measured_s for step in own) - 1
        for own in several
    )


def error(steps: Sequence[MeasuredStep], seconds: Seconds) -> float:
    """Mean |error|."""
    return fmean(abs(seconds(step) / step.measured_s - 1) for step in steps)


def _by_width(steps: Steps) -> dict[int, list[MeasuredStep]]:
    widths: dict[int, list[MeasuredStep]] = {}
    for choice, own in steps.items():
        widths.setdefault(choice.h, []).extend(own)
    return widths


def _width(step: MeasuredStep) -> int:
    return step.instance.workload.hidden_size


def _drawn(steps: Sequence[MeasuredStep], seed: int) -> list[MeasuredStep]:
    """One step per kernel shape."""
    shapes: dict[Kernels, list[MeasuredStep]] = {}
    for step in steps:
        shapes.setdefault(step.kernels, []).append(step)
    drawing = random.Random(seed)
    return [drawing.choice(own) for own in shapes.values()]


def corrected(fits: Mapping[int, Fit]) -> Seconds:
    """Step times with the factors of every width."""
    return lambda step: fits[_width(step)].predicted_s(step)


def megatron_order(step: MeasuredStep) -> tuple[float, ...]:
    """Less is preferred; all of these steps fit memory, since they ran."""
    shape = step.plan.config
    tp = shape.degrees[0].tp
    return tp * shape.pp, -tp, _modelled(step)


def _modelled(step: MeasuredStep) -> float:
    return step.predicted_s()


def fasop(fits: Mapping[int, Fit]) -> Seconds:
    """Step times with layer times of micro-batch 1, scaled as in FASOP's code."""

    def seconds(step: MeasuredStep) -> float:
        kernels, shape = step.kernels, step.plan.config
        one = fits[_width(step)].factors(kernels._replace(micro_batch=1))
        times = [
            TimeColumns(step.instance).times(shape.degrees, b, "none").forward_ns[:, 0]
            for b in (1, kernels.micro_batch)
        ]
        b = kernels.micro_batch
        own = FASOP_BLOCKS[b] if _width(step) == FASOP_WIDTH else b
        blocks, head = (log(scale * times[0][i] / times[1][i]) for scale, i in ((own, 1), (b, -1)))
        factors = Factors(one.blocks + blocks, one.ends + head)
        return step.predicted_s(dict.fromkeys(step.shapes, factors))

    return seconds


def figures(steps: Steps, draws: int = DRAWS) -> Iterator[dict[str, Any]]:
    """Error and regret of every rule."""
    every = [step for own in steps.values() for step in own]
    widths = _by_width(steps)

    def row(rule: str, error: float | None, regret: float, **more: float | None) -> dict[str, Any]:
        return {"rule": rule, "steps": len(every), "error": error, "regret": regret, **more}

    yield row("analytic model", error(every, _modelled), regret(steps, _modelled))
    errors, regrets = [], []
    for seed in range(draws):
        drawn = {h: _drawn(own, seed) for h, own in widths.items()}
        seconds = corrected({h: fit(own) for h, own in drawn.items()})
        used = {id(step) for own in drawn.values() for step in own}
        errors.append(error([step for step in every if id(step) not in used], seconds))
        regrets.append(regret(steps, seconds))
    yield row("one step per kernel shape", fmean(errors), fmean(regrets))
    fits = {h: fit(own) for h, own in widths.items()}
    seconds = corrected(fits)
    yield row("all steps", error(every, seconds), regret(steps, seconds))
    ones = {h: fit([s for s in own if s.kernels.micro_batch == 1]) for h, own in widths.items()}
    scaled = fasop(ones)
    yield row("FASOP's scaling", error(every, scaled), regret(steps, scaled))
    yield row("Megatron-LM's takeaways", None, regret(steps, megatron_order))
