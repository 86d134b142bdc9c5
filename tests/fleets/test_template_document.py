"""What a document says of templates."""

from solver.fleets.template_document import templates_document
from solver.templates.generate import TemplateGenerator, TemplateOptions
from tests.random_fleets import enlarged


def test_what_the_document_says_of_sizes() -> None:
    """n0 = 1 on 4 nodes and one fault: size 1 covers all; a failure of 3 or 4 takes one apart.

    Its claims are those of its designs, one for each template.
    """
    generator = TemplateGenerator(enlarged(116), TemplateOptions(micro_batch=1))
    document = templates_document(generator, 1)
    assert (document.least_nodes, document.sizes, document.available) == (1, (1,), 4)
    assert document.pipelines == ("2: 2 pipelines", "3: 3 pipelines", "4: 4 pipelines")
    assert (document.fewest_sizes, document.fewest_proved) == ((1,), True)
    assert (document.rebuilt_nodes, document.rebuilt, document.rebuilt_by_fewest) == ((3, 4), 1, 1)
    assert [claim.design for claim in document.claims.bounds] == [*range(len(document.designs))]
    for claim, design in zip(document.claims.bounds, document.designs, strict=True):
        entry = next(one for one in document.templates[::-1] if one.template == design.template)
        assert claim.micro_batches == entry.micro_batches
        assert (claim.step_time_s, claim.bound_s) == (entry.step_time_s, entry.bound_s)
