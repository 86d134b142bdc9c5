"""How long steps take that were drawn, by every way to choose; see `judge`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

Way = Literal["plan", "single", "fastest", "clairvoyant"]


@dataclass(frozen=True)
class Judgement:
    """Times of the drawn steps by every way that has one, ns, [step]."""

    times_ns: Mapping[Way, tuple[int, ...]]

    def mean_ns(self, way: Way) -> float:
        """Mean time of a step."""
        return float(np.mean(self.times_ns[way]))

    def percentile_95_ns(self, way: Way) -> float:
        """Time that 95 % of the steps keep."""
        return float(np.percentile(self.times_ns[way], 95))
