"""What a fleet file claims of its templates: true claims are proved, false ones refuted."""

from functools import lru_cache

import pytest

from formulations.instance import Instance
from formulations.node_sharing import NodeSplit
from solver.files import sealed
from solver.fleet_document import FleetDocument, TemplateClaims
from solver.fleets.designs import templates_document
from solver.fleets.fleet import next_fleet, start_fleet
from solver.fleets.recovery import Horizon
from solver.graph.pipelines import Counts
from solver.interrupt import Deadline
from solver.templates.generate import TemplateGenerator, TemplateOptions
from solver.verify import Effort, verify_fleet
from solver.verify.templates import PipelineSpace, faster_template
from tests.conftest import present
from tests.recorded import as_recorded
from tests.seeds import one_each
from tests.small_instances import random_instance
from tests.template_cases import values_of_all, with_long_optimizers
from tests.verify.forgeries import judged

#: More than any step of these instances, ns.
LONG_NS = 10**15


def check_every_mix(instance: Instance, split: NodeSplit) -> None:
    """The best of all templates of a mix is shown to be the best, and no less is shown."""
    options = TemplateOptions(split=split, micro_batch=1)
    generator = TemplateGenerator(instance, options)
    for nodes in range(1, sum(generator.mixes.available) + 1):
        m, best = generator.micro_batches(nodes), dict[Counts, int]()
        for template, value in values_of_all(instance, options, nodes, m, 1):
            mix = template.counts(len(instance.cluster.groups))
            best[mix] = min(value, best.get(mix, value))
        for mix in generator.mixes.of(nodes):
            space = PipelineSpace(instance, split, mix, 1, m)
            assert faster_template(space, best.get(mix, LONG_NS), Deadline(None)) is None
            if mix in best:
                faster = present(faster_template(space, best[mix] + 1, Deadline(None)))
                assert faster[1] == best[mix]


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("seed", one_each(range(55, 115), 60))
def test_claims_are_true_up_to_the_best_of_all_templates(seed: int, blocking: bool) -> None:
    split = NodeSplit.ANY if seed % 2 else NodeSplit.ALIGNED
    instance = random_instance(seed)
    check_every_mix(instance.but(search={"blocking_sends": blocking}), split)
    check_every_mix(with_long_optimizers(seed, blocking), split)


@lru_cache
def fleet(degrees: tuple[int, ...] | None = None) -> FleetDocument:
    """Of two nodes of two GPUs: one pipeline each, or one of both."""
    instance = with_long_optimizers(33, True).but(search={"tensor_parallel": degrees})
    document = templates_document(TemplateGenerator(instance, TemplateOptions(micro_batch=1)), 0)
    return start_fleet(instance, document.designs, 0, claims=document.claims)


def claims(document: FleetDocument) -> TemplateClaims:
    return present(document.templates)


def test_bug_templates_that_are_not_the_best_are_refused() -> None:
    """The best of stages of one GPU, in a fleet of an instance that allows two."""
    narrow, wide = fleet((1,)), fleet()
    assert claims(narrow).bounds[0].bound_s > claims(wide).bounds[0].bound_s
    forged = sealed(narrow.but(instance=wide.instance))
    [problem, *_] = verify_fleet(forged).problems
    assert problem.startswith("templates.bounds[0].bound_s: found")
    assert f"expected at most {claims(wide).bounds[0].step_time_s}, the step of" in problem


def test_bug_stages_of_degrees_that_are_not_listed_are_refused() -> None:
    """The other way round, by whatever split."""
    wide = fleet()
    forged = wide.but(instance=fleet((1,)).instance)
    for document in (forged, forged.but(templates=None)):
        [problem, *_] = verify_fleet(sealed(document)).problems
        assert problem.startswith(
            "designs[0].template.stages[0]: found 2 GPUs, expected one of [1]"
        )


def test_what_is_said_of_forged_claims() -> None:
    """A design, a step, and a bound that is not above it; templates of stages elsewhere."""
    fields = "templates designs.template instance.search.tensor_parallel"
    as_recorded("verify_templates", judged("fleet", fleet(), verify_fleet, fields, number=3))


def test_claims_are_proved_and_what_is_not_is_said() -> None:
    """Of a fleet, and of the next one; without claims, with `--quick`, and without time."""
    for document in (fleet(), next_fleet(fleet(), ["fast-0"], [], Horizon(10**12))):
        verification = verify_fleet(document)
        assert verification.problems == ()
        assert not [line for line in verification.reservations if "pipeline" in line]
        number = len(claims(document).bounds)
        assert f"no pipeline is faster than claimed of {number} templates" in verification.checked
    nothing = verify_fleet(sealed(fleet().but(templates=None)))
    number = len(fleet().designs)
    text = f"that no pipeline is faster, which is not claimed of designs {[*range(number)]}"
    assert nothing.reservations == (text,)
    for effort in (Effort(prove="quick"), Effort(time_limit_s=0)):
        verification = verify_fleet(fleet(), effort)
        assert verification.problems == ()
        word = "templates.bounds[{}], at the word of the search"
        assert verification.reservations == tuple(map(word.format, range(number)))
