"""What a framework is told to run, whoever wrote it down, and where each choice stands.

For whoever has no launch files, degrees and strategies are a text: `tp=4,pp=2,micro_batch=2`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from formulations.errors import PlanError
from formulations.instance import Instance
from formulations.instance.search import RECOMPUTE_WAYS, ScheduleName, ZeroStage
from formulations.instance.targets import Target
from formulations.instance.workload import Recompute


@dataclass(frozen=True)
class Launched:
    """Degrees and strategies of a run; None: not said.

    places: of a field, the file and line, or the option, that says it; of any other, `source`.
    boundaries: pp vpp + 1 layer indices. first_blocks: of every stage, that are recomputed; None:
    all. etp, microbatch_group: as in `Configuration`. settings: fields of `search` that the files
    decide for all plans. by_replica: are the ranks of one replica neighbours, and not those of one
    stage? flash: what asks for flash attention, and where.
    """

    source: str
    target: Target
    tp: int
    pp: int
    boundaries: tuple[int, ...]
    micro_batch: int
    dp: int | None = None
    cp: int = 1
    ep: int = 1
    etp: Literal[1] | None = None
    vpp: int = 1
    microbatch_group: int | None = None
    schedule: ScheduleName = "1f1b"
    zero: ZeroStage = 0
    optimizer_instances: int = 1
    sync_each_batch: bool = True
    recompute: Recompute = "none"
    first_blocks: int | None = None
    by_replica: bool = False
    flash: tuple[str, str] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def error(self, name: str, found: str, allowed: str) -> PlanError:
        """A choice that cannot be."""
        return PlanError(self.places.get(name, self.source), found, allowed)


class Stated(NamedTuple):
    """What a file says of a flag or a field: its values, and the line that it stands in."""

    values: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Settings:
    """The flags or fields of a file, by name; `source`: the name of the file."""

    source: str
    stated: Mapping[str, Stated]

    def place(self, name: str) -> str:
        """File and line of a setting; of one that is missing, the file."""
        return f"{self.source}:{self.stated[name].line}" if name in self.stated else self.source

    def error(self, name: str, allowed: str, because: str = "") -> PlanError:
        """A setting that cannot stand as it does."""
        there = self.stated.get(name)
        said = "no " + name if there is None else " ".join((name, *there.values))
        return PlanError(self.place(name), said + because, allowed)

    def has(self, name: str) -> bool:
        """Whether the file has a setting."""
        return name in self.stated

    def text(self, name: str) -> str | None:
        """The value of a setting that has one."""
        return self.stated[name].values[0] if name in self.stated else None

    def number(self, name: str, otherwise: int | None = None) -> int:
        """A whole number from 1 on; PlanError for another text, and without any or a default."""
        text = self.text(name)
        if text is None and otherwise is not None:
            return otherwise
        if text is None or not re.fullmatch(r"[1-9]\d{0,8}", text):
            raise self.error(name, "a whole number from 1 on")
        return int(text)

    def optional(self, name: str) -> int | None:
        """The same of a setting without a default."""
        return self.number(name) if name in self.stated else None

    def exclude(self, name: str, *rivals: str) -> None:
        """Raises PlanError where settings stand beside one that excludes them."""
        for excluded in rivals:
            if name in self.stated and excluded in self.stated:
                beside = f", beside {name} ({self.place(name)})"
                raise self.error(excluded, "one of the two", beside)


def block_boundaries(instance: Instance, blocks: Sequence[int]) -> tuple[int, ...]:
    """Layer boundaries of stages with so many blocks each, as many in all as the chain has.

    What stands before the first block goes with it, what stands behind one with the next.
    """
    layers = instance.workload.layers
    behind = [0, *(i + 1 for i, layer in enumerate(layers) if layer.is_block)]
    total, cuts = 0, []
    for count in blocks[:-1]:
        total += count
        cuts.append(max(behind[total], 1 if not total else 0))
    return (0, *cuts, len(layers))


OPTION = "--degrees"
_NUMBERS = (
    *("tp", "cp", "ep", "etp", "pp", "dp", "vpp", "microbatch_group", "micro_batch"),
    "optimizer_instances",
)
_WORDS: Mapping[str, tuple[object, ...]] = {
    "schedule": get_args(ScheduleName),
    "recompute": RECOMPUTE_WAYS,
    "zero": tuple(map(str, get_args(ZeroStage))),
    "sync_each_batch": ("true", "false"),
}


def run_of_degrees(text: str, instance: Instance) -> Launched:
    """The run that such a text describes. Raises PlanError as `run_of`, and for unknown names."""
    names, written = (*_NUMBERS, *_WORDS, "split"), dict[str, str]()
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or name not in names:
            raise PlanError(OPTION, repr(part.strip()), f"NAME=VALUE with {', '.join(names)}")
        if name in written:
            raise PlanError(OPTION, f"{name} twice", "each name once")
        if name in _NUMBERS and not re.fullmatch(r"[1-9]\d{0,6}", value):
            raise PlanError(OPTION, f"{name}={value}", "a whole number from 1 on")
        if name in _WORDS and value not in _WORDS[name]:
            raise PlanError(OPTION, f"{name}={value}", " or ".join(map(str, _WORDS[name])))
        written[name] = value
    numbers = {name: int(written[name]) for name in (*_NUMBERS, "zero") if name in written}
    syncs = {"sync_each_batch": written.get("sync_each_batch") != "false"}
    return run_of({**written, **numbers, **syncs}, instance, OPTION, {})


def run_of(
    stated: Mapping[str, Any], instance: Instance, source: str, places: Mapping[str, str]
) -> Launched:
    """The run of stated fields; what is left out is 1, 1F1B, no ZeRO, split evenly.

    source, places: as of `Launched`. Raises PlanError for fields that do not go together.
    """
    fields: dict[str, Any] = {"tp": 1, "pp": 1, "micro_batch": 1, **stated}
    etp, split = fields.pop("etp", None), fields.pop("split", None)
    fields.setdefault("schedule", "interleaved" if fields.get("vpp", 1) > 1 else "1f1b")
    run = Launched(source, instance.search.target, boundaries=(), places=places, **fields)
    tp, pp, vpp, group = run.tp, run.pp, run.vpp, run.microbatch_group
    if (run.schedule == "interleaved") != (vpp > 1):
        problem = f"schedule={run.schedule} with vpp={vpp}"
        raise run.error("vpp", problem, "interleaved with vpp > 1")
    if vpp > 1 and pp == 1:
        raise run.error("vpp", f"vpp={vpp} with pp=1", "vpp=1, or several stages")
    if group not in (None, pp) and vpp == 1:
        problem = f"microbatch_group={group} with vpp=1"
        raise run.error("microbatch_group", problem, "several chunks")
    if etp not in (None, 1, tp):
        allowed = " or ".join(map(str, sorted({1, tp})))
        raise run.error("etp", f"etp={etp} with tp={tp}", allowed)
    return replace(
        run,
        boundaries=block_boundaries(instance, _split(run, split, instance.workload.num_blocks)),
        microbatch_group=None if group == pp else group,
        etp=1 if etp == 1 and tp > 1 else None,
    )


def _split(run: Launched, text: str | None, blocks: int) -> list[int]:
    """Blocks of each virtual stage, as written or evenly."""
    stages = run.pp * run.vpp
    if text is None:
        each, rest = divmod(blocks, stages)
        if rest or not each:
            problem = f"{blocks} blocks on {stages} stages"
            allowed = "a divisor, or split=9/7/5/3 with the blocks of each"
            raise run.error("pp", problem, allowed)
        return [each] * stages
    if not re.fullmatch(r"\d{1,6}(/\d{1,6})*", text):
        raise run.error("split", f"split={text}", "blocks of each stage, such as 9/7/5/3")
    split = [int(number) for number in text.split("/")]
    if len(split) != stages or sum(split) != blocks:
        problem = f"split={text}: {sum(split)} blocks on {len(split)} stages"
        raise run.error("split", problem, f"{blocks} blocks on {stages} stages")
    if 0 in split[1:-1]:
        allowed = "a block on every stage but the first and last"
        raise run.error("split", f"split={text}", allowed)
    return split
