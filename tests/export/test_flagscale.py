"""FlagScale's files, read back: each rule that would end the job at start is found broken."""

import pytest

from formulations.errors import PlannerError
from formulations.plan import Degrees
from solver.export import flagscale
from solver.export.registry import EXPORTERS
from tests.export.stored import check_exports, in_parts
from tests.export_cases import job_of

FLAGSCALE = EXPORTERS["flagscale"]


test_files_are_as_stored = check_exports("flagscale")


def test_types_that_would_move_ranks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """On A10, A100, A10 the runtime would put both A10 first, were they called so."""
    job = job_of()
    kinds = {rank.stage: rank.gpu_type for rank in job.ranks}
    monkeypatch.setattr(flagscale, "_device_types", lambda _: [kinds[k] for k in range(4)])
    with pytest.raises(PlannerError, match="order of the ranks by device type"):
        FLAGSCALE.check(job, flagscale.files(job))


def test_parts_of_the_ends_divide_with_zero_1() -> None:
    """4 parts on the first stage and 2 on the last may share states, 3 and 2 may not."""
    four, three = (
        in_parts(Degrees(tp=1, parts=parts), Degrees(tp=1, parts=2), micro_batch=12)
        for parts in (4, 3)
    )
    FLAGSCALE.check(four, flagscale.files(four))
    with pytest.raises(PlannerError, match="first and last dp read back as 1"):
        FLAGSCALE.check(three, flagscale.files(three))
