"""The work bound of a shape: what its slots have to do, and what follows."""

from fractions import Fraction
from math import ceil

from solver.verify.chain import Chain


def work_bound_ns(chain: Chain) -> int:
    """No plan of the shape has a shorter step time T.

    Proof. The slot of stage i of replica r, on group j, is busy for t with each of m_r
    micro-batches, one at a time, and then comes the tail of the stage: T >= m_r t + s + start. Give
    the groups weights w_j > 0 and add this up over all slots, times w. A replica has each layer x
    once, on some group: it adds w_j (m_r t_xj + s_xj), at least the least over j. If all have
    m_r = M / dp that is so for all replicas alike; if not, sum_r m_r = M, and w_j m_r t_xj and
    w_j s_xj are each at least their own least. T is whole.

    Any weights are valid. These are 1 / sum_x (M t_xj + dp s_xj).
    """
    total, dp = chain.total, chain.shape.dp
    used, layers = chain.least.used, range(len(chain.is_block))
    even = chain.prover.instance.search.micro_batches == "even"
    weights = {
        j: Fraction(1, max(total * sum(chain.work[j]) + dp * sum(chain.tail[j]), 1)) for j in used
    }
    whole = Fraction(0)
    for x in layers:
        work = {j: weights[j] * total * chain.work[j][x] for j in used}
        tail = {j: weights[j] * dp * chain.tail[j][x] for j in used}
        whole += (
            min(work[j] + tail[j] for j in used)
            if even
            else min(work.values()) + min(tail.values())
        )
    speed = sum(weights[j] * chain.slots(j) for j in used)
    return ceil(whole / speed + chain.start)
