"""Random tiny instances whose nodes may be taken back."""

import random

from formulations.instance import Instance, Objective
from formulations.instance.machines import Spot
from formulations.instance.preemption import Preemption
from tests.small_instances import random_instance


def spot_instance(seed: int) -> Instance:
    """A random instance, small enough for brute force, with groups on demand, on spot, or either.

    Money per useful sequence is minimised.
    """
    instance, rng = (
        random_instance(seed).but(search={"pipeline_parallel": (1, 2, 3)}),
        random.Random(seed),
    )
    groups = []
    for group in instance.cluster.groups:
        spot = Spot(
            price_usd_per_hour=group.price_usd_per_hour * rng.uniform(0.2, 0.9),
            preemptions_per_hour=rng.choice([0.0, 1.0, 20.0]),
            only=rng.random() < 0.3,
        )
        own = {"spot": spot if rng.random() < 0.8 else None}
        groups.append(group.model_copy(update=own))
    cluster = instance.cluster.but(groups=tuple(groups))
    every_s = rng.choice([None, None, 60.0])
    preemption = Preemption(restart_s=30, checkpoint_s=2, checkpoint_every_s=every_s)
    update = {
        "cluster": cluster,
        "preemption": preemption,
        "objective": Objective(minimize="cost_per_useful_sequence"),
    }
    return instance.model_copy(update=update)
