"""Text files, read whole or refused in one line."""

import csv
import errno
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from formulations.errors import InstanceError
from formulations.instance.input_limits import MOST_BYTES, printable
from formulations.instance.positions import Place


def read_bytes(path: Path, allowed: str, place: Place | None = None) -> bytes:
    """What a file of at most 256 MiB holds.

    Raises InstanceError; a file that cannot be opened is reported at `place`, where another file
    names it, and `allowed` says which file is meant.
    """
    try:
        with open(path, "rb", opener=_opened) as file:
            data = file.read(MOST_BYTES + 1)
            if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EPIPE, "a pipe that nobody writes to")
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        if place is None:
            raise InstanceError(str(path), reason, allowed) from None
        found = f"cannot read {printable(str(path))}: {reason}"
        raise place.error(found, allowed) from None
    if len(data) > MOST_BYTES:
        raise InstanceError(str(path), "more than 256 MiB", allowed)
    return data


def _opened(path: str, flags: int) -> int:
    """A file descriptor; a pipe that nobody writes to is not waited for, but found empty."""
    number = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(number, True)
    return number


def read_text(path: Path, allowed: str, place: Place | None = None) -> str:
    """Text of a UTF-8 file without its byte order mark. Raises InstanceError as `read_bytes`."""
    data = read_bytes(path, allowed, place)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", errors="replace")
        where = f"{path}:{line_and_column(before)}"
        raise InstanceError(where, f"byte 0x{data[error.start]:02x}", "text in UTF-8") from None


def line_and_column(before: str) -> str:
    """Position, from 1, of what follows the text `before`."""
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def csv_rows(path: Path, allowed: str) -> list[list[str]]:
    """Rows of a CSV file whose fields may be quoted. Raises InstanceError."""
    try:
        return list(csv.reader(io.StringIO(read_text(path, allowed))))
    except csv.Error as error:
        raise InstanceError(str(path), str(error), allowed) from None


def csv_fields(text: str) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Line number and (column, text) of the fields of every line of a CSV that is not blank."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        column, fields = 1, []
        for field in line.split(","):
            fields.append((column + len(field) - len(field.lstrip()), field.strip()))
            column += len(field) + 1
        yield number, fields
