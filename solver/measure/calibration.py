"""Factors of layer times and of the network from measured steps, and the instance with them.

One factor multiplies the times of blocks, another those of embedding and head (the ends), a third
what passes between nodes. Steps are few, noisy, and several per kernel shape or none. A step has
the factors of all shapes that its stages have.

Log factors are a Gaussian process. Those of layers have the covariance of
`formulations.costs.layer_factors`, given the layers measured on the GPU type, and a part MACHINE
that all layers share, of hosts and software; so steps of other widths speak of this one by how near
they are. That of the network is N(0, NETWORK^2). A step's log time is that of the simulator plus
slopes times log factors, and N(0, NOISE^2) of its own. The factors are the posterior means
(Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, equation 2.25, of linear
functions), with slopes taken anew at them (Gauss-Newton). What each step would be by the others
alone says what error to expect (there, equation 5.12), and which factors are kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import exp, log
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.costs.layer_factors import BLOCKS, ENDS, KernelShape, measured_layers, posterior
from formulations.costs.plan_costs import plan_costs
from formulations.instance import Instance
from formulations.instance.machines import LEAST_FACTOR, MOST_FACTOR
from formulations.instance.profile import Calibration
from formulations.plan import Plan
from solver.simulate import step_time_ns
from solver.uncertainty import common_deviation


class Kernels(NamedTuple):
    """What decides the sizes of a layer's kernels; of a profile, whose model is known, in part."""

    gpu: str
    tp: int
    micro_batch: int
    width: int = 1
    sequence_length: int = 1

    @property
    def shape(self) -> KernelShape:
        """Its kernels'."""
        return KernelShape(self.width, self.tp, self.micro_batch * self.sequence_length)


class Factors(NamedTuple):
    """Logarithms of factors: of times of blocks, of embedding and head, and between nodes."""

    blocks: float
    ends: float
    network: float = 0.0


def corrections(instance: Instance, factors: Factors) -> dict[str, float]:
    """What times are multiplied by, for every layer kind of the instance."""
    layers = {run.layer.kind: run.layer.is_block for run in instance.workload.layer_runs}
    return {
        kind: exp(factors.blocks if is_block else factors.ends) for kind, is_block in layers.items()
    }


@dataclass(frozen=True)
class MeasuredStep:
    """A plan, how long its step took, and its measured peak memory if known."""

    instance: Instance
    plan: Plan
    measured_s: float
    memory_bytes: float | None = None

    @cached_property
    def shapes(self) -> tuple[Kernels, ...]:
        """Whose factors decide its time: those of its stages; one unless GPUs or degrees differ."""
        cluster, workload, shapes = self.instance.cluster, self.instance.workload, set[Kernels]()
        for stage in (stage for replica in self.plan.replicas for stage in replica.stages):
            gpu = cluster.groups[cluster.node_groups[stage.group.node]].gpu.name
            size = stage.degrees.sequences(self.plan.config.micro_batch)
            sizes = workload.hidden_size, workload.sequence_length
            shapes.add(Kernels(gpu, stage.degrees.tp, size, *sizes))
        return tuple(sorted(shapes))

    @property
    def kernels(self) -> Kernels:
        """The first of its shapes, of most steps the only one."""
        return self.shapes[0]

    @property
    def several(self) -> bool:
        """Whether it ran on several nodes."""
        return sum(self.plan.config.nodes_used) > 1

    def predicted_s(self, factors: Mapping[Kernels, Factors] | None = None) -> float:
        """Step time, as modelled or corrected by the factors of its shapes."""
        corrected = self.instance
        if factors is not None:
            tables: dict[str, dict[str, dict[int, dict[int, float]]]] = {}
            for shape in self.shapes:
                for kind, factor in corrections(self.instance, factors[shape]).items():
                    degrees = tables.setdefault(kind, {}).setdefault(shape.gpu, {})
                    degrees.setdefault(shape.tp, {})[shape.micro_batch] = factor
            calibration = Calibration(source="measured steps", factors=tables)
            network = exp(factors[self.kernels].network)
            cluster = self.instance.cluster.with_network_factor(network)
            corrected = self.instance.but(calibration=calibration, cluster=cluster)
        return step_time_ns(plan_costs(corrected, self.plan)) / 1e9


#: Standard deviations of logarithms: of a measured step, on one node and on several, whose traffic
#: differs by more than a factor; of what all layers of a machine share; of the network's factor.
#: Chosen on published steps of A100 (vTrain, MICRO 2024): from 1, 3 and 10 steps of a model, the
#: others were predicted best with these.
NOISE, SEVERAL_NOISE = 0.02, 0.1
MACHINE, NETWORK = 0.05, 0.6
DIFFERENCE = 1e-3
MOST_ROUNDS = 4
CLOSE = 1e-4
#: A factor is told by the steps where its deviation falls to this share of what it was.
TOLD = 0.5

Floats = NDArray[np.float64]
NEUTRAL = Factors(0.0, 0.0)
NAMES = ("blocks", "embedding and head", "network")


@dataclass(frozen=True)
class Tangent:
    """Log time of a step near some factors: `log_s` there, and its slopes [shape, factor]."""

    step: MeasuredStep
    at: Mapping[Kernels, Factors]
    log_s: float
    slopes: Floats

    @staticmethod
    def of(step: MeasuredStep, at: Mapping[Kernels, Factors]) -> "Tangent":
        """By small differences; the network's one factor has its slope at the first shape."""
        here, slopes = log(step.predicted_s(at)), np.zeros((len(step.shapes), len(NEUTRAL)))
        for (i, shape), (k, name) in product(enumerate(step.shapes), enumerate(Factors._fields)):
            if name != "network" or (step.several and not i):
                moved = at[shape]._replace(**{name: at[shape][k] + DIFFERENCE})
                slopes[i, k] = (log(step.predicted_s({**at, shape: moved})) - here) / DIFFERENCE
        return Tangent(step, at, here, slopes)

    @property
    def log_ratio(self) -> float:
        """Of the measured time over the modelled one, were all factors 1, linearly."""
        at = np.array([self.at[shape] for shape in self.step.shapes])
        return log(self.step.measured_s) - self.log_s + float((at * self.slopes).sum())


Kept = Literal["all", "layers", "none"]


@dataclass(frozen=True)
class Fit:
    """Measured steps near their most probable factors, and which kinds of factors are kept."""

    tangents: tuple[Tangent, ...]
    kept: Kept = "all"

    @cached_property
    def shapes(self) -> list[Kernels]:
        """[part] kernel shapes of all steps, one after the other."""
        return [shape for tangent in self.tangents for shape in tangent.step.shapes]

    @cached_property
    def slopes(self) -> Floats:
        """[part, factor] of the parts' steps."""
        return np.concatenate([tangent.slopes for tangent in self.tangents])

    @cached_property
    def parts(self) -> Floats:
        """[step, part] 1 where the step has the part."""
        steps = [i for i, each in enumerate(self.tangents) for _ in each.step.shapes]
        return np.equal.outer(np.arange(len(self.tangents)), steps).astype(float)

    def prior(self, kernels: Sequence[Kernels]) -> Floats:
        """[factor, shape, factor, shape] covariance of log factors before any step."""
        n, gpus = len(kernels), [each.gpu for each in kernels]
        covariance = np.zeros((3, n, 3, n))
        for gpu in dict.fromkeys(gpus):
            instance, gpu_type = next(
                (tangent.step.instance, group.gpu)
                for tangent in self.tangents
                for group in tangent.step.instance.cluster.groups
                if group.gpu.name == gpu
            )
            rows = [i for i in range(n) if gpus[i] == gpu]
            shapes, at = [kernels[i].shape for i in rows], np.ix_(rows, rows)
            measured = measured_layers(instance, gpu_type)
            blocks = BLOCKS._replace(common=common_deviation(instance, gpu_type))
            tables = (measured.blocks, measured.ends) if measured else ({}, {})
            for k, (cells, spread) in enumerate(zip(tables, (blocks, ENDS), strict=True)):
                covariance[k, :, k, :][at] += posterior(cells, shapes, spread)[1]
            covariance[np.ix_((0, 1), rows, (0, 1), rows)] += MACHINE**2
        covariance[2, :, 2, :] = NETWORK**2
        if self.kept == "layers":
            covariance[2] = 0.0
        if self.kept == "none":
            covariance[:] = 0.0
        return covariance

    @cached_property
    def joint(self) -> Floats:
        """[step, step] covariance of log times of measured steps, their own scatter included."""
        by_part = np.einsum("pk,kplq,ql->pq", self.slopes, self.prior(self.shapes), self.slopes)
        joint: Floats = self.parts @ by_part @ self.parts.T
        noise = [SEVERAL_NOISE if each.step.several else NOISE for each in self.tangents]
        joint += np.diag(np.square(noise))
        return joint

    @cached_property
    def log_ratios(self) -> Floats:
        """[step] of measured over modelled times."""
        return np.array([each.log_ratio for each in self.tangents])

    def _weights(self, kernels: Kernels) -> tuple[Floats, Floats]:
        """[factor, step] that give the factors of a shape, and their [factor, factor] prior."""
        prior = self.prior([kernels, *self.shapes])
        by_part: Floats = np.einsum("klq,ql->kq", prior[:, 0, :, 1:], self.slopes)
        return by_part @ self.parts.T, prior[:, 0, :, 0]

    def factors(self, kernels: Kernels) -> Factors:
        """Of any shape on a GPU type; none on one that no step ran on."""
        if all(shape.gpu != kernels.gpu for shape in self.shapes):
            return NEUTRAL
        means = self._weights(kernels)[0] @ np.linalg.solve(self.joint, self.log_ratios)
        return Factors(*means.clip(log(LEAST_FACTOR), log(MOST_FACTOR)).tolist())

    def deviations(self, kernels: Kernels) -> tuple[Floats, Floats]:
        """[factor] of the log factors of a shape, before and after the steps."""
        weights, prior = self._weights(kernels)
        after = prior - weights @ np.linalg.solve(self.joint, weights.T)
        return np.sqrt(np.diag(prior)), np.sqrt(np.diag(after).clip(0))

    def predicted_s(self, step: MeasuredStep) -> float:
        """A step with these factors."""
        return step.predicted_s(self.of(step))

    def of(self, step: MeasuredStep) -> dict[Kernels, Factors]:
        """The factors of a step's shapes."""
        return {shape: self.factors(shape) for shape in step.shapes}

    def left_out(self, i: int, others: Sequence[int]) -> float:
        """Log of predicted over measured time of step i, by other steps alone."""
        if not others or self.kept == "none":
            return -float(self.log_ratios[i])
        rows = np.ix_(others, others)
        mean = self.joint[i, others] @ np.linalg.solve(self.joint[rows], self.log_ratios[others])
        return float(mean - self.log_ratios[i])

    @property
    def error_left_out(self) -> float:
        """Mean |log error| of steps by all others."""
        everyone = range(len(self.tangents))
        return fmean(abs(self.left_out(i, [j for j in everyone if j != i])) for i in everyone)

    def expected_error(self, elsewhere: bool = False) -> float | None:
        """Mean |error| of a step that is left out, of shapes with others; None without any.

        elsewhere: where all steps of its shape are left out; None without other shapes.
        """
        shapes, errors = [each.step.shapes for each in self.tangents], []
        gpus = [{shape.gpu for shape in each} for each in shapes]
        for i, own in enumerate(shapes):
            alike = [j for j, each in enumerate(shapes) if j != i and each == own]
            others = [j for j in range(len(shapes)) if j != i and not (elsewhere and j in alike)]
            if any(gpus[i] & gpus[j] for j in others) and (elsewhere or alike):
                errors.append(abs(exp(self.left_out(i, others)) - 1))
        return fmean(errors) if errors else None

    def told(self, gpu: str) -> str:
        """Which factors of a GPU type its steps tell, and which they cannot."""
        own = [shape for shape in self.shapes if shape.gpu == gpu]
        if self.kept == "none":
            return f"{gpu}: no factor kept, none lowers the error of steps left out"
        if len(own) == 1:
            return f"{gpu}: 1 step, which tells blocks, embedding and head only together"
        parts: dict[bool, list[str]] = {True: [], False: []}
        before, after = self.deviations(own[0])
        for name, prior, now in zip(NAMES, before, after, strict=True):
            told = bool(0 < now <= TOLD * prior)
            parts[told].append(f"{name} ± {100 * now:.2g} %" if told else name)
        clauses = [f"{', '.join(parts[True])} told" if parts[True] else "none told alone"]
        clauses += [f"not {', '.join(parts[False])}"] if parts[False] else []
        return f"{gpu}: {len(own)} steps, {'; '.join(clauses)}"


def fit(steps: Iterable[MeasuredStep]) -> Fit:
    """The most probable factors of measured steps, those kept that meet steps left out best.

    Of one step alone nothing can be said, and its factors of layers are kept.
    """
    steps, last = list(steps), list[dict[Kernels, Factors]]()
    best = Fit(())
    for _ in range(MOST_ROUNDS):
        near = last or [dict.fromkeys(step.shapes, NEUTRAL) for step in steps]
        tangents = tuple(Tangent.of(step, at) for step, at in zip(steps, near, strict=True))
        best = fit_near(tangents)
        last = [best.of(step) for step in steps]
        moved = [
            np.abs(np.subtract(new[shape], old[shape])).max()
            for new, old in zip(last, near, strict=True)
            for shape in new
        ]
        if max(moved) < CLOSE:
            break
    return best


def fit_near(tangents: tuple[Tangent, ...]) -> Fit:
    """All kinds of factors, those of layers, or none: what has the least error left out.

    Of equal ones the fewest; several steps on several nodes can tell the network from layers.
    """
    if len(tangents) < 2:
        return Fit(tangents, "layers")
    ways: tuple[Kept, ...] = ("none", "layers")
    if sum(each.step.several for each in tangents) > 1:
        ways = (*ways, "all")
    return min((Fit(tangents, kept) for kept in ways), key=lambda each: each.error_left_out)
