"""The comparison of even and uneven micro-batches: the same problem but for the shares."""

from bench.shares import compare, shorter, with_shares
from solver.options import SolveOptions
from tests.small_instances import random_instance


def test_uneven_is_never_slower() -> None:
    """Both are proved, and all even plans are among the uneven ones."""
    even, uneven = compare("tiny", random_instance(1), SolveOptions())
    assert (even["status"], uneven["status"]) == ("optimal", "optimal")
    saved = shorter(even, uneven)
    assert saved is not None
    assert saved >= 0


def test_only_the_shares_change() -> None:
    """The instance with its own shares is itself."""
    instance = random_instance(3)
    assert with_shares(instance, instance.search.micro_batches) == instance
