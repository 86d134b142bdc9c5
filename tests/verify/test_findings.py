"""Problems, one line each, and where two instances differ."""

from solver.verify import instance_differences
from solver.verify.findings import Findings
from tests.certified_cases import CASES
from tests.verify.forgeries import forged


def test_other_instance_is_told_field_by_field() -> None:
    """Two changed fields and a longer list give one line each."""
    document = CASES["pipelined"]()
    assert instance_differences(document.instance, document.instance) == ()
    limits = {"instance.name": "x", "instance.limits.memory_headroom": 0.1}
    other = forged(document, limits | {"instance.search.recompute": ["none", "full"]})
    assert instance_differences(document.instance, other.instance) == (
        "instance.limits.memory_headroom: found 0.0, expected 0.1",
        "instance.name: found 'case', expected 'x'",
        "instance.search.recompute: found 1 entries, expected 2 entries",
    )


def test_figures_may_differ_by_float_noise() -> None:
    """A part in 10^12, or 10^-15 of what may be 0; nothing is not 0."""
    alike = [(1.0, 1.0 + 1e-13), (0.0, 1e-16), (None, None)]
    unlike = [(1.0, 1.0 + 1e-11), (0.0, 1e-14), (None, 0.0), (0.0, None)]
    for found, expected in (*alike, *unlike):
        findings, holds = Findings(), (found, expected) in alike
        assert findings.close("gap", found, expected) is holds
        text = () if holds else (f"gap: found {found!r}, expected {expected!r}",)
        assert findings.verification().problems == text
        assert findings.equal("stages", 2, 2)
        findings.reserve("a bound")
        verification = findings.verification()
        assert (not verification.problems, verification.complete) == (holds, False)


def test_a_part_halts_after_problems_of_its_own() -> None:
    """The second of three has one, and is left; the third is not."""
    findings, ended = Findings(), list[int]()
    for part, found in enumerate((2, 3, 2)):
        with findings.part():
            findings.equal("stages", found, 2)
            findings.halt()
            ended.append(part)
    assert ended == [0, 2]
