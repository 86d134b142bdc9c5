"""How Megatron-LM splits its blocks among pipeline ranks, where no layout says it.

`get_num_layers_to_build` of Megatron-Core 0.20 (`core/transformer/transformer_block.py`): evenly;
or a number for the first and the last rank and the rest evenly; or evenly with the embedding and
the loss counted as a block each. Chunks of a rank are equal, before these are taken off.
"""

from formulations.instance import Instance
from solver.evaluate.flags import Flags
from solver.evaluate.launched import num_blocks
from solver.export.megatron_layout import parsed

LAYOUT = "--pipeline-model-parallel-layout"
FIRST, LAST = "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"
EMBEDDING = "--account-for-embedding-in-pipeline-split"
LOSS = "--account-for-loss-in-pipeline-split"
BLOCKS_PER_CHUNK = "--num-layers-per-virtual-pipeline-stage"
CHUNKS = "--num-virtual-stages-per-pipeline-rank"
PP = "--pipeline-model-parallel-size"


def boundaries(flags: Flags, instance: Instance, pp: int) -> tuple[int, ...]:
    """Layer boundaries of all virtual stages. Raises PlanError where Megatron-LM would refuse."""
    flags.exclude(LAYOUT, FIRST, LAST, EMBEDDING, LOSS, BLOCKS_PER_CHUNK, CHUNKS)
    flags.exclude(FIRST, EMBEDDING, LOSS)
    flags.exclude(LAST, EMBEDDING, LOSS)
    flags.exclude(BLOCKS_PER_CHUNK, CHUNKS)
    text = flags.text(LAYOUT)
    pieces = _even(flags, instance, pp) if text is None else _layout(flags, text, instance, pp)
    cuts = [0]
    for piece in pieces:
        cuts.append(cuts[-1] + piece)
    return tuple(cuts)


def _layout(flags: Flags, text: str, instance: Instance, pp: int) -> list[int]:
    """Layers of every piece; Megatron-LM takes empty ones, and leaves such ranks without work."""
    num_mtp = instance.workload.mtp_layers
    try:
        stages = parsed(text, pp, num_blocks(instance), num_mtp).stages
    except ValueError as error:
        allowed = f"E, then {num_blocks(instance)} t, then L, in n * {pp} pieces apart by |"
        raise flags.error(LAYOUT, allowed, f": {error}") from None
    pieces = [len(stages[i % pp][i // pp]) for i in range(pp * len(stages[0]))]
    if num_mtp and stages[-1][-1].count("mtp") < num_mtp:
        raise flags.error(LAYOUT, "layers m in the piece of the loss: plans have them in the head")
    pieces[-1] -= num_mtp
    if 0 in pieces:
        raise flags.error(LAYOUT, "a layer in every piece", f": piece {pieces.index(0)} is empty")
    return pieces


def _even(flags: Flags, instance: Instance, pp: int) -> list[int]:
    """Layers of every chunk: its blocks, the embedding with the first, the head with the last."""
    by_rank = _blocks_by_rank(flags, num_blocks(instance), pp)
    vpp = _chunks(flags, by_rank[0], pp)
    for own in by_rank:
        if own % vpp:
            flag = CHUNKS if flags.has(CHUNKS) else BLOCKS_PER_CHUNK
            raise flags.error(flag, "chunks of equally many blocks", f": a rank has {own}")
    pieces = [by_rank[s % pp] // vpp for s in range(pp * vpp)]
    pieces[0] += 1 - flags.has(EMBEDDING)
    pieces[-1] += 1 - flags.has(LOSS)
    if min(pieces) < 1:
        raise flags.error(PP, "a layer for every stage", f": stage {pieces.index(0)} has none")
    return pieces


def _blocks_by_rank(flags: Flags, blocks: int, pp: int) -> list[int]:
    """As many as each rank counts: embedding and loss among them where they are counted."""
    first, last = flags.optional(FIRST), flags.optional(LAST)
    counted = flags.has(EMBEDDING) + flags.has(LOSS)
    total = blocks + counted - (first or 0) - (last or 0)
    ranks = pp - (first is not None) - (last is not None)
    if total < 0 or ranks < 0 or (total % ranks if ranks else total):
        rest = f": {total} layers for {ranks} pipeline ranks"
        flag = next((one for one in (FIRST, LAST, EMBEDDING, LOSS) if flags.has(one)), PP)
        raise flags.error(flag, f"an equal share of them for each, or {LAYOUT}", rest)
    middle = [total // ranks] * ranks if ranks else []
    head, tail = ([one] if one is not None else [] for one in (first, last))
    return [*head, *middle, *tail]


def _chunks(flags: Flags, blocks: int, pp: int) -> int:
    """Virtual stages per rank; blocks: of the first one."""
    each, vpp = flags.optional(BLOCKS_PER_CHUNK), flags.number(CHUNKS, 1)
    if each is not None:
        vpp, rest = divmod(blocks, each)
        if rest or not vpp:
            raise flags.error(BLOCKS_PER_CHUNK, f"a divisor of {blocks}, the blocks of a rank")
    if vpp > 1 and pp == 1:
        flag = CHUNKS if flags.has(CHUNKS) else BLOCKS_PER_CHUNK
        raise flags.error(flag, "none, or several pipeline ranks", f" with {PP} 1")
    return vpp
