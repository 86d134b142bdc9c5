"""How long training takes with preemptions, by checkpoints and restarts, in closed form.

Preemptions of all nodes together are a Poisson process of rate q. After every t of training a
checkpoint takes d. A preemption loses all since the last whole checkpoint; training goes on from it
once no further preemption has come for R, in which a replacement gets ready and all restart. The
expected time for t of training is then

    E(t) = e^(q R) (e^(q (t + d)) - 1) / q                                                       (1)

Proof. The process has no memory. An attempt at the c = t + d of one checkpoint to the next ends
undisturbed with probability e^(-q c), so there are e^(q c) - 1 failed ones on average; attempts
last (1 - e^(-q c)) / q on average, all together (e^(q c) - 1) / q. After every failed one comes a
recovery, as long as it takes until no preemption has come for R: (e^(q R) - 1) / q on average, by
the same argument. The sum is (1) (Daly, FGCS 22(3):303, 2006, equation 20).

`slowdown` is E(t) / t; 1 / slowdown is the availability. To first order it is
1 + d / t + q (R + d + (t + d) / 2): checkpoints, and per preemption recovery and lost work.

It increases with q, as (e^(q c) - 1) / q does (its series has no negative coefficient), and so
does its least value over all t. It does not depend on the step time: checkpoints are taken to be
possible at any moment, which the least value over whole steps cannot be below.
"""

import math

from formulations.instance.preemption import Preemption

#: Longer by e to this, all slowdowns are equal: no training ends, and products stay finite.
MOST_EXPONENT = 500.0
LONGEST_S = 1e9


def best_cycle(checkpoint: float) -> float:
    """Value of q (t + d) at the t for which E(t) / t is least; checkpoint: q d.

    Where the derivative is 0, z = q (t + d) fulfils z + e^(-z) - 1 = q d. The left side is convex
    and increases, so Newton's steps from beyond the root, 1 + q d, come down to it. At the root
    (e^z - 1) / (q t) = e^z, so that the least slowdown is e^(z + q R).
    """
    if not checkpoint:
        return 0.0
    z = 1 + checkpoint
    while 0 < (lower := z + (z + math.expm1(-z) - checkpoint) / math.expm1(-z)) < z:
        z = lower
    return z


def checkpoint_every_s(preemption: Preemption, rate_per_s: float) -> float | None:
    """Training between two checkpoints: as given, or what costs least; None: there are none.

    At most LONGEST_S: once in 30 years is never.
    """
    if preemption.checkpoint_every_s is not None or not rate_per_s:
        return preemption.checkpoint_every_s
    checkpoint = preemption.checkpoint_s * rate_per_s
    return min(LONGEST_S, (best_cycle(checkpoint) - checkpoint) / rate_per_s)


def slowdown(preemption: Preemption, rate_per_s: float) -> float:
    """Expected time per time of training that is kept, at least 1; see the module's text.

    rate_per_s: preemptions of all nodes together.
    """
    every_s = checkpoint_every_s(preemption, rate_per_s)
    if every_s is None:
        return 1.0
    cycle_s = every_s + preemption.checkpoint_s
    cycle = rate_per_s * cycle_s
    exponent = rate_per_s * preemption.restart_s + cycle
    if cycle:
        exponent += math.log(-math.expm1(-cycle) / cycle)
    if every_s:  # else checkpoints cost nothing
        exponent += math.log(cycle_s / every_s)
    return math.exp(min(MOST_EXPONENT, exponent))


def in_whole_steps(preemption: Preemption, rate_per_s: float, step_s: float) -> tuple[int, float]:
    """Steps between two checkpoints near `checkpoint_every_s`, and the slowdown with them.

    The better of the numbers next to it. Raises ValueError where there are no checkpoints.
    """
    every_s = checkpoint_every_s(preemption, rate_per_s)
    if every_s is None:
        raise ValueError("without preemptions there are no checkpoints")
    fewer = max(1, math.floor(every_s / step_s))

    def slowed(steps: int) -> float:
        every = preemption.model_copy(update={"checkpoint_every_s": steps * step_s})
        return slowdown(every, rate_per_s)

    best = min(fewer, fewer + 1, key=slowed)
    return best, slowed(best)
