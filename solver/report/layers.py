"""Names of layers: blocks count from 0, as in Megatron-LM; embedding and head have letters.

Plan files count along the whole chain instead: 0 is the embedding, 1 the first block.
"""

from collections.abc import Iterable
from itertools import accumulate, groupby

from formulations.instance import Workload
from solver.report.quantities import ranges


def layers_text(workload: Workload, layers: Iterable[int]) -> str:
    """Some layers of the chain: "E, 0-2" for the embedding and the first three blocks."""
    chain = workload.layers
    numbers = list(accumulate((layer.is_block for layer in chain), initial=0))
    runs = groupby(sorted(set(layers)), key=lambda n: chain[n].is_block)
    return ", ".join(
        ranges(numbers[n] for n in run)
        if are_blocks
        else ", ".join(chain[n].kind[0].upper() for n in run)
        for are_blocks, run in runs
    )
