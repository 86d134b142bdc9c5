"""What a search for the best template of one size found, and what it proved."""

from dataclasses import dataclass

from formulations.template import Template


@dataclass(frozen=True)
class TemplateOutcome:
    """What is known for one size.

    template, value: the best template below the cutoff, and its objective; None if none was found.
    bound: no template of the size is below it, unless it is the value. complete: the search ran to
    its end, so without a template none is below the cutoff.
    """

    template: Template | None
    value: int | None
    bound: int
    complete: bool
