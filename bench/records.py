"""What every benchmark record says besides its figures: where, when and with what it was run."""

import json
import os
import platform
import resource
import sys
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from formulations.plan import Degrees
from solver.report.naming import tensor_text

ROOT = Path(__file__).resolve().parent.parent
INSTANCES = ROOT / "instances"
RESULTS = ROOT / "bench" / "results"
PACKAGES = ("numpy", "ortools", "pulp", "highspy")


def reference(*patterns: str, folder: Path | None = None) -> Path:
    """Folder of the data that are not ours to ship: HETPLAN_REFERENCE, unless one is given.

    Ends the program with exit code 2 and one line if no file in it matches one of the patterns.
    """
    usual = os.environ.get("HETPLAN_REFERENCE", ROOT.parent / "shared" / "reference")
    found = folder or Path(usual)
    for pattern in patterns:
        if not any(found.glob(pattern)):
            text = f"{found / pattern}: no such file; allowed: the reference folder of"
            print(f"error: {text} bench/README.md, named by HETPLAN_REFERENCE", file=sys.stderr)
            sys.exit(2)
    return found


def json_of(path: Path) -> Any:
    """What a file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def processor() -> str:
    """Model name of the CPU."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def hardware() -> dict[str, Any]:
    """CPU model, cores that this process may use, main memory."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return {"cpu": processor(), "cores": cores, "memory_bytes": memory_bytes}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _own_version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def versions() -> dict[str, str | None]:
    """Python, this checkout, and the packages that decide speed; None: not installed."""
    own = {"python": platform.python_version(), "hetplan": _own_version()}
    return own | {name: _version(name) for name in PACKAGES}


def cpu_seconds() -> float:
    """User and system seconds of this process and of its ended children so far."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def peak_rss_bytes() -> int:
    """Largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return rss_bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def rss_bytes(maxrss: int) -> int:
    """Bytes of a `ru_maxrss`, which Linux gives in KiB and macOS in bytes."""
    return maxrss if sys.platform == "darwin" else maxrss * 1024


def record(benchmark: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """One record: the figures, with date, hardware and versions."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"benchmark": benchmark, "date": date}
    return head | dict(figures) | {"hardware": hardware(), "versions": versions()}


def append(path: Path, records: list[dict[str, Any]]) -> None:
    """Adds one JSON line per record to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for one in records:
            file.write(json.dumps(one, allow_nan=False) + "\n")


def stored(path: Path) -> list[dict[str, Any]]:
    """All records of a file, in the order in which they were added."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def config_text(config: Mapping[str, Any] | None) -> str:
    """Tensor x data x pipeline, micro-batch; chunks where there are several. Empty without a plan.

    Records up to 2026-11-21 have one tensor degree for all node groups.
    """
    if config is None:
        return ""
    tensor = config.get("tp") or tensor_text(Degrees(**one) for one in config["degrees"])
    chunks = f" x {config['vpp']}" if config.get("vpp", 1) > 1 else ""
    return f"{tensor} x {config['dp']} x {config['pp']}{chunks}, {config['micro_batch']}"
