"""Instance files that several tests of the loader start from."""

from pathlib import Path

from formulations.instance import Instance
from formulations.instance.documents import parse_document
from formulations.instance.load import parse_instance
from formulations.instance.machines import links_of
from tests.conftest import ROOT, text_of

DATA = ROOT / "tests" / "data"

MINIMAL = text_of("minimal.txt")

#: A catalogue of one GPU type and its link.
ONE_GPU = text_of("one_gpu.txt")
LINKS = links_of(
    parse_document("links: {L: {bandwidth: 8 Gbit/s, latency: 1 us, source: s}}", "links.yaml")
)

PROFILE = text_of("profile.txt")


def parsed(text: str, folder: Path = DATA) -> Instance:
    return parse_instance(text, "x.yaml", folder)
