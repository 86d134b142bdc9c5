"""Words of a plan say what the plan file says, and those without a plan what is in the way."""

from tests.report.shown import PLANS, check_stored

test_words_are_as_stored = check_stored(*PLANS, "planless")
