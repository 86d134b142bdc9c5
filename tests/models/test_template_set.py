"""The fewest template sizes that cover a range of node counts, against trying all sets."""

from itertools import combinations, combinations_with_replacement

import pytest

from formulations.models.template_set import TemplateSet
from tests.twins import TWINS, Twin, solved


def covers(sizes: tuple[int, ...], nodes: range, faults: int) -> bool:
    return all(
        any(
            sum(each) == number
            for count in range(faults + 1, number + 1)
            for each in combinations_with_replacement(sizes, count)
        )
        for number in nodes
    )


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
@pytest.mark.parametrize(
    ("nodes", "least_size", "faults"),
    [(range(4, 7), 2, 1), (range(5, 8), 2, 1), (range(3, 8), 1, 2), (range(6, 8), 3, 0)],
)
def test_the_model_has_the_fewest_sizes(
    twin: Twin, nodes: range, least_size: int, faults: int
) -> None:
    known = range(least_size, max(nodes) - faults * least_size + 1)
    fewest = next(
        count
        for count in range(1, len(known) + 1)
        if any(covers(sizes, nodes, faults) for sizes in combinations(known, count))
    )
    built = TemplateSet(twin.model(), nodes, least_size, faults)
    outcome = solved(built.model)
    assert outcome.objective == fewest
    assert outcome.values is not None
    sizes = built.extract(outcome.values)
    assert len(sizes) == fewest
    assert covers(sizes, nodes, faults)


def test_fewer_nodes_than_any_set_covers_are_refused() -> None:
    with pytest.raises(ValueError, match="sizes from 2 on and 1 faults"):
        TemplateSet(TWINS[0].model(), range(3, 6), 2, 1)
