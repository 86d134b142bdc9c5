"""GPUs and workloads in words say what the catalogue holds, with every source."""

from tests.report.shown import check_stored

test_catalogue_is_as_stored = check_stored("catalogued")
