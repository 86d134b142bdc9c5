"""How far a plan's step may be from its prediction, and two plans' difference from theirs.

The log of a step is taken to be linear in log factors that nobody knows: those of blocks of each
kernel shape, of embedding and head of each GPU type, of each link kind's traffic, of optimizers,
and of all of it together. The slope of a factor is its share of the critical path. So the variance
is s' C s, with C from `formulations.costs.layer_factors` and the deviations below; the difference
of two plans has slopes s1 - s2, and what they share cancels. The deviations are round figures
chosen on the given half of the published steps; `python -m bench coverage` holds them against any
folder of steps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import log, pi, sqrt
from typing import NamedTuple

import numpy as np

from formulations.costs.layer_factors import (
    ASSUMED,
    BLOCKS,
    REACH,
    Floats,
    KernelShape,
    measured_layers,
    posterior,
)
from formulations.costs.layer_factors import ENDS as MEASURED_ENDS
from formulations.costs.plan_costs import plan_costs, plan_tables
from formulations.instance import GpuType, Instance
from formulations.plan import Configuration, Plan
from solver.simulate import simulate_step

#: Standard deviations of log factors: of the head where vocabularies are padded, of traffic between
#: GPUs, of optimizers, of all together (software and hosts), of a configuration by itself.
ENDS, TRAFFIC, UPDATE, TOGETHER, CONFIGURATION = 0.15, 0.3, 0.3, 0.05, 0.02
#: Of experts (tokens per expert, permutation, imbalance); of what ZeRO 2 and 3 exchange with every
#: micro-batch; of sequences that GPUs share, whose rings few steps show (torchtitan's on H100 are
#: 1.7 and 2.7 times as long as predicted, SimuMax's on B200 1.1 times); of blocks before Ampere, of
#: which steps of T4 alone show 16 bit.
EXPERTS, SHARDING, CONTEXT, BEFORE_AMPERE = 0.25, 0.3, 0.3, 0.4
#: 80 % of a normal distribution are within so many standard deviations.
BAR = 1.2816


class Term(NamedTuple):
    """A factor: of blocks or ends of a shape on a GPU type, or of a kind of other work."""

    kind: str
    gpu: str = ""
    shape: KernelShape | None = None


@dataclass(frozen=True)
class StepEstimate:
    """The logarithm of a plan's step time in s: its mean, and the share of every factor."""

    instance: Instance
    log_s: float
    shares: Mapping[Term, float]

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the logarithm."""
        return sqrt(covariance([self])[0, 0])

    @property
    def bar(self) -> float:
        """Four of five measured steps are expected within this share of the prediction."""
        return float(np.expm1(BAR * self.deviation))


def step_estimate(instance: Instance, plan: Plan) -> StepEstimate:
    """Mean and deviation of the log step time of a plan."""
    costs = plan_costs(instance, plan)
    tables, columns = plan_tables(instance, plan)
    step, pp = simulate_step(costs), plan.config.pp
    groups, work = instance.cluster.groups, tables.forward_ns + tables.backward_ns
    workload = instance.workload
    time_ns: Counter[Term] = Counter()
    path = step.critical_path
    time_ns[Term("traffic")] += sum(max(0, b.start_ns - a.end_ns) for a, b in pairwise(path))
    for operation in path:
        length_ns = operation.end_ns - operation.start_ns
        if operation.micro_batch is None:
            kind = "update" if operation.kind == "optimizer" else "traffic"
            time_ns[Term(kind)] += length_ns
            continue
        replica, s = operation.replica or 0, operation.chunk * pp + operation.stage
        stage = plan.replicas[replica].stages[s]
        gpu = groups[instance.cluster.node_groups[stage.group.node]].gpu.name
        tokens = stage.degrees.sequences(plan.config.micro_batch) * workload.sequence_length
        shape = KernelShape(workload.hidden_size, stage.degrees.tp, tokens // stage.degrees.cp)
        layers, column = slice(*stage.layers), columns[replica][s]
        whole_ns = work[layers, column].sum()
        blocks = (work[layers, column] * tables.is_block[layers]).sum() / max(1, whole_ns)
        time_ns[Term("blocks", gpu, shape)] += int(length_ns * blocks)
        time_ns[Term("ends", gpu, shape)] += int(length_ns * (1 - blocks))
    shares = {term: ns / step.step_time_ns for term, ns in time_ns.items() if ns}
    if workload.experts:
        shares[Term("experts")] = sum(s for term, s in shares.items() if term.kind == "blocks")
    if plan.config.in_lockstep:
        shares[Term("sharding")] = 1.0
    if plan.config.cp > 1:
        shares[Term("context")] = 1.0
    return StepEstimate(instance, log(step.step_time_ns / 1e9), shares)


def expected_error(instance: Instance, plan: Plan) -> tuple[float, tuple[str, ...]] | None:
    """The share of the step that four of five such steps lie within, and what is measured near.

    By the steps of a calibration where there is one; None where they are too few to say, and where
    layers were measured, of which no error is known.
    """
    calibration = instance.calibration
    if calibration is not None:
        error = calibration.expected_error
        if unmeasured(instance, plan.config):
            error = calibration.expected_error_elsewhere
        # A normal distribution's mean size is sqrt(2 / pi) deviations
        return None if error is None else (BAR * sqrt(pi / 2) * error, (calibration.source,))
    if instance.profile is not None:
        return None
    lacking, texts = list[str](), list[str]()
    groups = zip(instance.cluster.groups, plan.config.nodes_used, strict=True)
    for gpu in {group.gpu.name: group.gpu for group, used in groups if used}.values():
        measured = measured_layers(instance, gpu)
        if measured is None:
            lacking.append(gpu.name)
        else:
            texts.append(f"{measured.evidence} of {gpu.name} within {REACH:g}x of this width")
    texts += [f"none of {', '.join(lacking)}"] if texts and lacking else []
    return step_estimate(instance, plan).bar, tuple(texts)


def unmeasured(instance: Instance, config: Configuration) -> list[str]:
    """Kernels of a configuration that a calibration has no step of, by GPU type, in words."""
    texts, calibration = [], instance.calibration
    groups = zip(instance.cluster.groups, config.nodes_used, config.degrees, strict=True)
    for group, used, degrees in groups:
        name, size = group.gpu.name, degrees.sequences(config.micro_batch)
        if used and calibration and not calibration.was_measured(name, degrees.tp, size):
            texts.append(f"{name} at tensor {degrees.tp}, micro-batch {size}")
    return list(dict.fromkeys(texts))


def covariance(estimates: Sequence[StepEstimate]) -> Floats:
    """[plan, plan] of the logarithms of step times, of plans of one instance: S C S', and TOGETHER.

    Every configuration is off by CONFIGURATION, by itself. GPU types are independent of each other.
    """
    instance = estimates[0].instance
    terms = list(dict.fromkeys(term for estimate in estimates for term in estimate.shares))
    shares = np.array([[each.shares.get(term, 0.0) for term in terms] for each in estimates])
    deviations = {"traffic": TRAFFIC, "update": UPDATE, "experts": EXPERTS, "sharding": SHARDING}
    deviations["context"] = CONTEXT
    factors: Floats = np.diag([deviations.get(term.kind, 0.0) ** 2 for term in terms])
    types = {group.gpu.name: group.gpu for group in instance.cluster.groups}
    for kind, name in dict.fromkeys((term.kind, term.gpu) for term in terms if term.shape):
        rows = [i for i, term in enumerate(terms) if (term.kind, term.gpu) == (kind, name)]
        shapes = [shape for i in rows if (shape := terms[i].shape)]
        factors[np.ix_(rows, rows)] = _layer_covariance(instance, types[name], kind, shapes)
    by_itself = CONFIGURATION**2 * np.eye(len(estimates))
    joint: Floats = shares @ factors @ shares.T + by_itself + TOGETHER**2
    return joint


def _layer_covariance(
    instance: Instance, gpu: GpuType, kind: str, shapes: Sequence[KernelShape]
) -> Floats:
    """[shape, shape] of log factors of blocks or ends, given what was measured of them."""
    measured = measured_layers(instance, gpu)
    if kind == "ends":
        if measured is None or not measured.ends:
            return np.full((len(shapes), len(shapes)), ENDS**2)
        return posterior(measured.ends, shapes, MEASURED_ENDS)[1]
    spread = BLOCKS._replace(common=common_deviation(instance, gpu))
    return posterior(measured.blocks if measured else {}, shapes, spread)[1]


def common_deviation(instance: Instance, gpu: GpuType) -> float:
    """Of what all of a GPU type's blocks are off together, before any step is measured."""
    if not gpu.has_flash and gpu.compute_capability is not None:
        return BEFORE_AMPERE
    measured = gpu.efficiency_evidence(instance.workload.precision).kind == "measured"
    return BLOCKS.common if measured else ASSUMED
