"""Bounds of errors, from bounds.txt beside it."""

from pathlib import Path


def bounds(benchmark: str) -> dict[str, tuple[int, float, float]]:
    """Rows, bound of the mean or median, bound of the largest or a percentile, by what is meant."""
    found = {}
    for line in Path(__file__).with_name("bounds.txt").read_text(encoding="utf-8").splitlines():
        name, *cells = (cell.strip() for cell in line.partition("#")[0].split("|"))
        if name == benchmark:
            found[cells[0]] = int(cells[1]), float(cells[2]), float(cells[3])
    return found
