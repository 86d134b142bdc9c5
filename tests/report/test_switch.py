"""Pages and pictures of switches."""

from xml.etree import ElementTree

import pytest

from solver.report.switch import device_rows, switch_picture
from tests.switch_cases import example

SVG = "{http://www.w3.org/2000/svg}"


def test_picture_has_times_and_volumes() -> None:
    """Bars of the three times are as long as they take; those of GPUs add up to all volumes."""
    document = example()
    root = ElementTree.fromstring(switch_picture(document))
    bars = [one for one in root.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]
    widths = [float(one.attrib["width"]) for one in bars]
    times = document.time_s, document.lower_bound_s, document.published_s
    for width, time_s in zip(widths, times, strict=False):
        assert width / widths[2] == pytest.approx(time_s / times[2], abs=1e-3)
    texts = [one.findtext(f"{SVG}title") or "" for one in bars[3:]]
    rows = device_rows(document)
    assert len(texts) == sum(size > 0 for _, volumes in rows for size in volumes)
    largest = max(max(volumes) for _, volumes in rows)
    scale = max(widths[3:]) / largest
    drawn = sum(widths[3:]) / scale
    assert drawn == pytest.approx(sum(sum(volumes) for _, volumes in rows), rel=1e-3)
