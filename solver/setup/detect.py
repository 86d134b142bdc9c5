"""The GPUs of the machine at hand, as its driver names them."""

from collections.abc import Iterable

from formulations.errors import InstanceError, PlannerError
from solver.setup.machines import Machines, catalogue_name


def detected_machines(known: Iterable[str]) -> Machines:
    """One node: this machine.

    Raises PlannerError without nvidia-ml-py or a driver, for no GPU, and for GPUs of two types.
    """
    try:
        import pynvml
    except ImportError:
        need = "--detect needs nvidia-ml-py: pip install nvidia-ml-py, or write --nodes"
        raise PlannerError(need) from None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise PlannerError(f"--detect: {error}; write --nodes instead") from None
    if not names:
        raise PlannerError("--detect: this machine has no NVIDIA GPU; write --nodes instead")
    types = tuple(known)
    found = sorted({catalogue_name(name, types, "--detect") for name in names})
    if len(found) > 1:
        raise InstanceError("--detect", f"GPUs of {' and '.join(found)}", "one type per node")
    return Machines(1, len(names), found[0])
