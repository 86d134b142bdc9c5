"""What a torchtitan configuration makes of an instance's model: a module, and its schedule.

The module assigns fields of `config`, as `export --to torchtitan` writes them; it is read, not run.
A schedule file is compared with the schedules that can be simulated, operation by operation.
"""

import ast
import re
from pathlib import Path
from typing import Any

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.documents import csv_rows, read_text
from formulations.instance.record import can_be_simulated
from formulations.instance.search import ScheduleName, ZeroStage
from formulations.instance.targets import ONE_STACK, chain_of
from formulations.schedules.registry import SCHEDULES
from solver.evaluate.launched import Launched, Settings, Stated
from solver.export.job import assignments
from solver.export.torchtitan import MODULE, POLICIES, SCHEDULE, Field, schedule_rows

_NAMED: dict[str, ScheduleName] = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved",
}
_NUMBERS = {"tp": Field.TP, "pp": Field.PP, "cp": Field.CP, "ep": Field.EP}


def _literal(settings: Settings, name: str, otherwise: object = None) -> object:
    """The value of a field; PlanError for one that has to be computed."""
    text = settings.text(name)
    if text is None:
        return otherwise
    try:
        return ast.literal_eval(text)
    except ValueError:
        raise settings.error(name, "a literal, as the module is not run") from None


def launched(folder: Path, instance: Instance) -> Launched:
    """The run that a folder configures. Raises PlanError for one that is no plan."""
    settings, workload = _read(folder), instance.workload
    if (chain := chain_of(workload)) != ONE_STACK:
        raise settings.error(Field.PP, "a model of one stack of blocks", f", for {chain}")
    for name, planned in (
        ("LAYERS", workload.num_blocks),
        (Field.LENGTH, workload.sequence_length),
    ):
        if settings.number(name, planned) != planned:
            raise settings.error(name, f"{planned}, as in the instance")
    if _literal(settings, Field.PER_STAGE) is not None:
        raise settings.error(Field.PER_STAGE, f"None, and {Field.PARTS}")
    numbers: dict[str, Any] = {name: settings.number(at, 1) for name, at in _NUMBERS.items()}
    tp, pp, cp, ep = numbers.values()
    cuts = _boundaries(settings, instance, pp)
    vpp, rest = divmod(len(cuts) - 1, pp)
    if rest:
        raise settings.error(Field.PARTS, f"a multiple of {pp}", f": {len(cuts) - 1} parts")
    size, dp, zero, instances = _batches(settings, instance, pp)
    share = workload.global_batch // (size * dp)
    way = settings.text("activation_checkpoint") or "None"
    policies = {policy: name for name, policy in POLICIES.items() if policy and policy in way}
    if way != "None" and not policies:
        raise settings.error("activation_checkpoint", "None, SelectiveAC or FullAC.Config()")
    told: dict[str, object] = {"context_method": "ring"} if cp > 1 else {}
    if tp > 1:
        told["sequence_parallel"] = _literal(settings, Field.SEQUENCE, True) is not False
    places = {"dp": Field.SHARD, "zero": Field.RESHARD, "vpp": Field.PARTS, **_NUMBERS}
    places["optimizer_instances"] = Field.REPLICATE
    places["micro_batch"] = Field.SIZE if pp > 1 else Field.LOCAL
    return Launched(
        source=settings.source,
        target="torchtitan",
        dp=dp,
        etp=1 if ep > 1 and tp > 1 and workload.experts else None,
        vpp=vpp,
        boundaries=cuts,
        micro_batch=size,
        schedule=_schedule(settings, folder, pp, vpp, share) if pp > 1 else "1f1b",
        zero=zero,
        optimizer_instances=instances,
        recompute=next(iter(policies.values()), "none"),
        settings=told,
        places={name: settings.place(field) for name, field in places.items()},
        **numbers,
    )


def _read(folder: Path) -> Settings:
    path = folder / MODULE
    if not path.is_file():
        modules = sorted(folder.glob("*.py"))
        if len(modules) != 1:
            content = f"{len(modules)} modules (*.py)" if folder.is_dir() else "no such folder"
            raise PlanError(str(folder), content, f"a folder with {MODULE}, or with one module")
        path = modules[0]
    text = read_text(path, "a module that configures torchtitan")
    try:
        stated = {
            name: Stated((ast.unparse(value),), line) for name, value, line in assignments(text)
        }
    except SyntaxError as error:
        where = f"{path}:{error.lineno}:{error.offset}"
        raise PlanError(where, error.msg, "a module of Python") from None
    settings = Settings(str(path), stated)
    for name in stated:
        if name.startswith("parallelism.") and name not in list(Field):
            fields = ", ".join(sorted(field for field in Field if field.startswith("para")))
            raise PlanError(settings.place(name), f"the unknown field {name}", fields)
    return settings


def _boundaries(settings: Settings, instance: Instance, pp: int) -> tuple[int, ...]:
    """Layer boundaries of the parts, which must name all modules once and in order."""
    last = len(instance.workload.layers)
    parts = _literal(settings, Field.PARTS)
    if parts is None:
        if pp > 1:
            allowed = "the modules of every part, as there are several stages"
            raise settings.error(Field.PARTS, allowed)
        return (0, last)
    numbers = {f"layers.{i}": i + 1 for i in range(instance.workload.num_blocks)}
    numbers |= {"tok_embeddings": 0, "lm_head": last - 1, "output": last - 1}
    cuts, norm = [0], False
    for i, part in enumerate(parts if isinstance(parts, list) else [None]):
        if not isinstance(part, list) or not all(isinstance(name, str) for name in part):
            raise settings.error(Field.PARTS, "a list of names of modules for every part")
        named = [name for name in part if name != "norm"]
        expected = range(cuts[-1], cuts[-1] + len(named))
        if not named or [numbers.get(name) for name in named] != list(expected):
            allowed = f"tok_embeddings, layers.0 to layers.{last - 3}, norm, lm_head, each once"
            raise PlanError(settings.place(Field.PARTS), f"{Field.PARTS}[{i}] {part}", allowed)
        norm = norm or "norm" in part
        cuts.append(expected.stop)
    if cuts[-1] != last or not norm:
        raise settings.error(Field.PARTS, f"all {last} layers, and norm", f": {cuts[-1]} layers")
    return tuple(cuts)


def _batches(settings: Settings, instance: Instance, pp: int) -> tuple[int, int, ZeroStage, int]:
    """Sequences of a micro-batch, replicas, what these split, and in how many groups."""
    shard, replicate = settings.number(Field.SHARD, 1), settings.number(Field.REPLICATE, 1)
    dp, local = shard * replicate, settings.number(Field.LOCAL)
    size = settings.number(Field.SIZE, 1) if pp > 1 else local
    total = instance.workload.global_batch
    if settings.number(Field.GLOBAL, total) != total:
        raise settings.error(Field.GLOBAL, f"{total}, workload.global_batch of the instance")
    if pp > 1 and local * dp != total:
        allowed = f"what {dp} replicas share of {total} sequences, all at once"
        raise settings.error(Field.LOCAL, allowed)
    sharing = [name for name in (Field.CP, Field.EP) if settings.number(name, 1) > 1]
    if sharing and replicate > 1 and shard == 1:  # they are FSDP's ranks
        allowed = f"1 beside {sharing[0]}, or {Field.SHARD} above 1: plans split over replicas"
        raise settings.error(Field.REPLICATE, allowed)
    if shard == 1 and not sharing:
        return size, dp, 0, 1
    reshard = _literal(settings, Field.RESHARD, "default")
    if reshard not in ("default", "always", "never"):
        raise settings.error(Field.RESHARD, "default, always or never")
    if pp == 1:
        return size, dp, 2 if reshard == "never" else 3, replicate
    if reshard == "always":
        raise settings.error(Field.RESHARD, "never with several stages: plans keep parameters")
    return size, dp, 1, replicate


def _schedule(settings: Settings, folder: Path, pp: int, vpp: int, share: int) -> ScheduleName:
    """The schedule that a file or a name stands for."""
    written = settings.text(Field.CSV)
    if written is None:
        schedule = _NAMED.get(str(_literal(settings, Field.NAME, "1F1B")))
        if schedule is None or SCHEDULES[schedule].interleaves != (vpp > 1):
            allowed = f"{' or '.join(_NAMED)} with as many parts as it runs, or a schedule file"
            raise settings.error(Field.NAME, allowed, f" with {vpp} parts per rank")
        return schedule
    named = re.search(r"['\"]([^'\"]*\.csv)['\"]", written)
    path = folder / (named[1] if named else SCHEDULE)
    rows = csv_rows(path, "a schedule, as its module names it")
    if len(rows) != pp:
        raise PlanError(str(path), f"{len(rows)} rows", f"{pp}, one per pipeline rank")
    if not can_be_simulated(pp * vpp, share, share):
        raise settings.error(Field.SIZE, "larger micro-batches, so that a step can be simulated")
    departures: dict[str, int] = {}  # the first rank that runs otherwise, by schedule
    for name, facts in SCHEDULES.items():
        if facts.interleaves == (vpp > 1) and not (facts.interleaves and share % pp):
            planned = schedule_rows(name, pp, vpp, share)
            if rows == planned:
                return name
            departures[name] = next(i for i in range(pp) if rows[i] != planned[i])
    line = max(departures.values(), default=0) + 1
    names = " or ".join(departures) or "no schedule"
    allowed = f"{names} with {share} micro-batches, {vpp} parts a rank"
    raise PlanError(f"{path}:{line}", "operations of no schedule that can be simulated", allowed)
