"""What a torchtitan configuration makes of an instance's model: a module, and its schedule.

The module assigns fields of `config`, as `export --to torchtitan` writes them; it is read, not run.
A schedule file is compared with the schedules that can be simulated, operation by operation.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.documents import csv_rows, read_text
from formulations.instance.input_limits import can_be_simulated
from formulations.instance.search import ScheduleName, ZeroStage
from formulations.instance.targets.launcher import STACK, chain_of
from formulations.instance.workload import Recompute
from formulations.schedules import SCHEDULES
from solver.evaluate.launched import Launched, num_blocks
from solver.export.job import assignments
from solver.export.torchtitan import MODULE, SCHEDULE, schedule_rows

_P, _T = "parallelism.", "training."
_TP, _PP = f"{_P}tensor_parallel_degree", f"{_P}pipeline_parallel_degree"
_CP, _EP = f"{_P}context_parallel_degree", f"{_P}expert_parallel_degree"
_SHARD, _REPLICATE = f"{_P}data_parallel_shard_degree", f"{_P}data_parallel_replicate_degree"
_RESHARD, _SEQUENCE = f"{_P}fsdp_reshard_after_forward", f"{_P}enable_sequence_parallel"
_NAME, _CSV = f"{_P}pipeline_parallel_schedule", f"{_P}pipeline_parallel_schedule_csv"
_SIZE = f"{_P}pipeline_parallel_microbatch_size"
_PER_STAGE, _PARTS = (
    f"{_P}pipeline_parallel_layers_per_stage",
    f"{_P}module_fqns_per_model_part",
)
_LOCAL, _GLOBAL, _LENGTH = (
    f"{_T}{one}" for one in ("local_batch_size", "global_batch_size", "seq_len")
)
_KNOWN = {
    *(_TP, _PP, _CP, _EP, _SHARD, _REPLICATE, _RESHARD, _SEQUENCE, _NAME, _CSV, _SIZE),
    *(_PER_STAGE, _PARTS),
}
_NAMED: dict[str, ScheduleName] = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved",
}


@dataclass(frozen=True)
class _Settings:
    """Fields of a module: expression and line by name."""

    path: Path
    found: dict[str, tuple[ast.expr, int]]

    def place(self, name: str) -> str:
        return f"{self.path}:{self.found[name][1]}" if name in self.found else str(self.path)

    def error(self, name: str, allowed: str, because: str = "") -> PlanError:
        said = ast.unparse(self.found[name][0]) if name in self.found else "not set"
        return PlanError(f"{self.place(name)} {name}", said + because, allowed)

    def value(self, name: str, otherwise: object = None) -> object:
        """A literal; PlanError for what has to be computed."""
        if name not in self.found:
            return otherwise
        try:
            return ast.literal_eval(self.found[name][0])
        except ValueError:
            raise self.error(name, "a literal, as the module is not run") from None

    def number(self, name: str, otherwise: int | None = None) -> int:
        value = self.value(name, otherwise)
        if type(value) is not int or value < 1:
            raise self.error(name, "a whole number from 1 on")
        return value


def launched(folder: Path, instance: Instance) -> Launched:
    """The run that a folder configures. Raises PlanError for one that is no plan."""
    settings = _read(folder)
    _check(settings, instance)
    pp = settings.number(_PP, 1)
    cuts = _boundaries(settings, instance, pp)
    size, dp, zero = _batches(settings, instance, pp)
    vpp, rest = divmod(len(cuts) - 1, pp)
    if rest:
        raise settings.error(_PARTS, f"a multiple of {pp}", f": {len(cuts) - 1} parts")
    share = instance.workload.global_batch // (size * dp)
    schedule = _schedule(settings, folder, pp, vpp, share) if pp > 1 else "1f1b"
    tp = settings.number(_TP, 1)
    cp, ep = settings.number(_CP, 1), settings.number(_EP, 1)
    told: dict[str, object] = {"context_method": "ring"} if cp > 1 else {}
    if tp > 1:
        told["sequence_parallel"] = settings.value(_SEQUENCE, True) is not False
    places = {"tp": _TP, "pp": _PP, "dp": _SHARD, "micro_batch": _SIZE if pp > 1 else _LOCAL}
    places |= {"zero": _RESHARD, "vpp": _PARTS, "cp": _CP, "ep": _EP}
    return Launched(
        source=str(settings.path),
        target="torchtitan",
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=ep,
        etp=1 if ep > 1 and tp > 1 and instance.workload.experts else None,
        vpp=vpp,
        boundaries=cuts,
        micro_batch=size,
        schedule=schedule,
        zero=zero,
        recompute=_recomputed(settings),
        settings=told,
        places={name: f"{settings.place(field)} {field}" for name, field in places.items()},
    )


def _read(folder: Path) -> _Settings:
    path = folder / MODULE
    if not path.is_file():
        modules = sorted(folder.glob("*.py"))
        if len(modules) != 1:
            content = f"{len(modules)} modules (*.py)" if folder.is_dir() else "no such folder"
            raise PlanError(str(folder), content, f"a folder with {MODULE}, or with one module")
        path = modules[0]
    text = read_text(path, "a module that configures torchtitan")
    try:
        assigned = {name: (value, line) for name, value, line in assignments(text)}
    except SyntaxError as error:
        where = f"{path}:{error.lineno}:{error.offset}"
        raise PlanError(where, error.msg, "a module of Python") from None
    settings = _Settings(path, assigned)
    for name in assigned:
        if name.startswith(_P) and name not in _KNOWN:
            fields = ", ".join(sorted(name.removeprefix(_P) for name in _KNOWN))
            raise PlanError(f"{settings.place(name)} {name}", "an unknown field", fields)
    return settings


def _check(settings: _Settings, instance: Instance) -> None:
    """Raises PlanError for what contradicts the instance, or what no plan describes."""
    if (chain := chain_of(instance.workload)) not in STACK.allowed:
        raise settings.error(_PP, "a model of one stack of blocks", f", for {chain}")
    workload, blocks = instance.workload, num_blocks(instance)
    for name, expected in (("LAYERS", blocks), (_LENGTH, workload.sequence_length)):
        if settings.number(name, expected) != expected:
            raise settings.error(name, f"{expected}, as in the instance")
    if settings.value(_PER_STAGE) is not None:
        raise settings.error(_PER_STAGE, f"None, and {_PARTS}")


def _boundaries(settings: _Settings, instance: Instance, pp: int) -> tuple[int, ...]:
    """Layer boundaries of the parts, which must name all modules once and in order."""
    last = len(instance.workload.layers)
    parts = settings.value(_PARTS)
    if parts is None:
        if pp > 1:
            raise settings.error(_PARTS, "the modules of every part, as there are several stages")
        return (0, last)
    numbers = {f"layers.{i}": i + 1 for i in range(num_blocks(instance))}
    numbers |= {"tok_embeddings": 0, "lm_head": last - 1, "output": last - 1}
    cuts, norm = [0], False
    for i, part in enumerate(parts if isinstance(parts, list) else [None]):
        if not isinstance(part, list) or not all(isinstance(name, str) for name in part):
            raise settings.error(_PARTS, "a list of names of modules for every part")
        named = [name for name in part if name != "norm"]
        expected = range(cuts[-1], cuts[-1] + len(named))
        if not named or [numbers.get(name) for name in named] != list(expected):
            allowed = f"tok_embeddings, layers.0 to layers.{last - 3}, norm, lm_head, each once"
            raise PlanError(f"{settings.place(_PARTS)} {_PARTS}[{i}]", f"{part}", allowed)
        norm = norm or "norm" in part
        cuts.append(expected.stop)
    if cuts[-1] != last or not norm:
        raise settings.error(_PARTS, f"all {last} layers, and norm", f": {cuts[-1]} layers")
    return tuple(cuts)


def _batches(settings: _Settings, instance: Instance, pp: int) -> tuple[int, int, ZeroStage]:
    """Sequences of a micro-batch, replicas, and what these split."""
    shard, replicate = settings.number(_SHARD, 1), settings.number(_REPLICATE, 1)
    if shard > 1 and replicate > 1:
        raise settings.error(_REPLICATE, f"1 beside {_SHARD}: plans have one kind of replicas")
    dp, local = shard * replicate, settings.number(_LOCAL)
    size = settings.number(_SIZE, 1) if pp > 1 else local
    total = instance.workload.global_batch
    if settings.number(_GLOBAL, total) != total:
        raise settings.error(_GLOBAL, f"{total}, workload.global_batch of the instance")
    if pp > 1 and local * dp != total:
        raise settings.error(_LOCAL, f"what {dp} replicas share of {total} sequences, all at once")
    sharing = [name for name in (_CP, _EP) if settings.number(name, 1) > 1]  # on FSDP's ranks
    if sharing and replicate > 1:
        allowed = f"1 beside {sharing[0]}: plans split states over all replicas"
        raise settings.error(_REPLICATE, allowed)
    if shard == 1 and not sharing:
        return size, dp, 0
    reshard = settings.value(_RESHARD, "default")
    if reshard not in ("default", "always", "never"):
        raise settings.error(_RESHARD, "default, always or never")
    if pp > 1:
        if reshard == "always":
            raise settings.error(_RESHARD, "never with several stages: plans keep parameters")
        return size, dp, 1
    return size, dp, 2 if reshard == "never" else 3


def _recomputed(settings: _Settings) -> Recompute:
    """None, or whole blocks; the selective mode keeps other tensors than plans do."""
    name = "activation_checkpoint"
    said = ast.unparse(settings.found[name][0]) if name in settings.found else "None"
    if said == "None":
        return "none"
    if "FullAC" in said:
        return "full"
    raise settings.error(name, "None or FullAC.Config()")


def _schedule(settings: _Settings, folder: Path, pp: int, vpp: int, share: int) -> ScheduleName:
    """The schedule that a file or a name stands for."""
    if _CSV not in settings.found:
        name = settings.value(_NAME, "1F1B")
        schedule = _NAMED.get(str(name))
        if schedule is None or SCHEDULES[schedule].interleaves != (vpp > 1):
            allowed = f"{' or '.join(_NAMED)} with as many parts as it runs, or a schedule file"
            raise settings.error(_NAME, allowed, f" with {vpp} parts per rank")
        return schedule
    parts = [
        node.value for node in ast.walk(settings.found[_CSV][0]) if isinstance(node, ast.Constant)
    ]
    names = (node for node in parts if isinstance(node, str) and node.endswith(".csv"))
    path = folder / next(names, SCHEDULE)
    rows = csv_rows(path, "a schedule, as its module names it")
    if len(rows) != pp:
        raise PlanError(str(path), f"{len(rows)} rows", f"{pp}, one per pipeline rank")
    if not can_be_simulated(pp * vpp, share, share):
        raise settings.error(_SIZE, "larger micro-batches, so that a step can be simulated")
    places = {}
    for name, planned in _candidates(pp, vpp, share):
        fault = next((i for i in range(pp) if rows[i] != planned[i]), None)
        if fault is None:
            return name
        places[name] = fault
    line = max(places.values(), default=0) + 1
    allowed = (
        f"{' or '.join(places) or 'no schedule'} with {share} micro-batches, {vpp} parts a rank"
    )
    raise PlanError(f"{path}:{line}", "operations of no schedule that can be simulated", allowed)


def _candidates(
    pp: int, vpp: int, share: int
) -> Iterator[tuple[ScheduleName, Sequence[list[str]]]]:
    for name, facts in SCHEDULES.items():
        if facts.interleaves == (vpp > 1) and not (facts.interleaves and share % pp):
            yield name, schedule_rows(name, pp, vpp, share)
