"""Records: copies with other fields."""

from tests.export_cases import instance_of


def test_bug_copies_kept_what_followed_from_the_fields_they_replace() -> None:
    """A workload whose layers were asked for has layers with flash attention once it gets that."""
    workload = instance_of("catalogue: gpt2, flash_attention: false").workload
    assert any(layer.core_bytes for layer in workload.layers)
    assert not any(layer.core_bytes for layer in workload.with_flash().layers)
