"""What is left of a fleet after nodes are lost or join, and what new pipelines go on from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from formulations.fleet import Pipeline, holdings
from formulations.template import Template
from formulations.transition import Links
from solver.fleets.assignment import cheapest


@dataclass(frozen=True)
class Situation:
    """What is left of a fleet. groups: node group of every node of the cluster.

    old: pipelines before the failure, with lost nodes. ready: nodes to use, those that joined
    included. layer_bytes: state of every layer.
    """

    links: Links
    groups: tuple[int, ...]
    old: tuple[Pipeline, ...]
    ready: tuple[int, ...]
    layer_bytes: tuple[int, ...]

    @cached_property
    def held(self) -> dict[int, range]:
        """Layers on the nodes that are ready."""
        ready = set(self.ready)
        return {node: layers for node, layers in holdings(self.old).items() if node in ready}

    @cached_property
    def former(self) -> dict[int, int]:
        """Old pipeline of every node that was in one."""
        return {node: p for p, pipeline in enumerate(self.old) for node in pipeline.nodes}

    def partners(self, templates: Sequence[Template]) -> list[int | None]:
        """For every new pipeline an old one that it goes on from: equal, then of similar size."""
        alive = Counter(self.former[node] for node in self.held)
        gaps = [
            [_gap(template, one.template, alive[p]) for p, one in enumerate(self.old)]
            + [1 << 20] * len(templates)
            for template in templates
        ]
        chosen = cheapest(np.array(gaps, dtype=np.int64))
        assert chosen is not None
        return [int(p) if p < len(self.old) else None for p in chosen]


def _gap(template: Template, old: Template, alive: int) -> int:
    """How far a new pipeline is from an old one of which so many nodes are left."""
    whole = alive == old.num_nodes
    return 0 if whole and old == template else 1 + abs(template.num_nodes - alive)
