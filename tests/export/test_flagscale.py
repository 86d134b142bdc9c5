"""FlagScale's files: meshes, device types and layers are the plan's, and the job starts."""

from tests.export.stored import check_exports

test_files_are_as_stored = check_exports("flagscale")
