"""The commands `catalogue` and `init`; for `profile` see tests/measure."""

from tests.docs_pages import check_consoles

test_consoles_of_setup = check_consoles("setup")
