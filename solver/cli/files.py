"""Output files: checked before the work starts, replaced in one step when it is done."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from formulations.errors import PlanError, PlannerError

if TYPE_CHECKING:
    from solver.document import PlanDocument
    from solver.files import Envelope

E = TypeVar("E", bound="Envelope")

_NEW_FILE = "name a file in a folder you can write to"
_NEW_FOLDER = "name a folder that does not exist yet"


def checked_plan(path: Path) -> "PlanDocument":
    """The plan file, as `checked`."""
    from solver.document import PlanDocument

    return checked(path, PlanDocument)


def checked(path: Path, *kinds: "type[E]") -> "E":
    """What a file of one of these kinds holds, checked but for what takes long to prove.

    Raises PlanError for one that was changed since it was written, that holds no plan, or of
    another kind.
    """
    from solver.document import PlanDocument
    from solver.files import read_one_of
    from solver.verify import Effort, verified

    document = read_one_of(kinds, path)
    if isinstance(document, PlanDocument):
        refuse_planless(path, document)
    if problems := verified(document, Effort(prove="nothing")).problems:
        allowed = "a file as it was written (verify names every field)"
        raise PlanError(str(path), problems[0], allowed)
    return document


def refuse_planless(path: Path, document: "PlanDocument") -> None:
    """PlanError for the file of a search that found no plan."""
    if document.config is None:
        raise PlanError(str(path), f"no plan (status {document.status})", "a file with a plan")


def check_writable(*paths: Path | None, keep: Iterable[Path | None] = ()) -> None:
    """Returns if all can be written as `write_text` does; PlannerError, in words, if not.

    keep: what else the command reads or writes, which would be lost.
    """
    seen = {_target(path) for path in filter(None, keep)}
    for path in filter(None, paths):
        target = _target(path)
        with _in_words(path, _NEW_FILE):  # of a name that is too long
            if target.is_dir():
                raise _refused(path, "it is a folder", _NEW_FILE)
            if target.exists() and not os.access(target, os.W_OK):
                raise _refused(path, "it is write-protected", _NEW_FILE)
        if _is_device(target):
            continue
        with _in_words(path, _NEW_FILE, f"folder {target.parent}: "):
            tempfile.TemporaryFile(dir=target.parent).close()  # the folder takes files
        if target in seen:
            raise _refused(path, "the command also names it as something else", _NEW_FILE)
        seen.add(target)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all: a temporary file beside it takes its place."""
    target = _target(path)
    with _in_words(path, _NEW_FILE):
        if _is_device(target):
            target.write_text(text, encoding="utf-8")
            return
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, target.stat().st_mode if target.exists() else 0o666 & ~_umask())
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise


def check_folder(path: Path) -> None:
    """Returns if `path` can become a new folder; PlannerError, in words, if not."""
    target = _target(path)
    with _in_words(path, _NEW_FOLDER):
        if target.exists() and not target.is_dir():
            raise _refused(path, "it is a file", _NEW_FOLDER)
        if target.is_dir() and any(target.iterdir()):
            raise _refused(path, "it is a folder with files", _NEW_FOLDER)
        tempfile.TemporaryFile(dir=target.parent).close()  # the folder takes files


def write_folder(path: Path, texts: Mapping[str, str]) -> None:
    """Writes files into a new folder, whole or not at all.

    A name may lie in a folder of its own, as 1/run.sh. Scripts can be run.
    """
    target = _target(path)
    check_folder(path)
    with (
        _in_words(path, _NEW_FOLDER),
        tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as draft,
    ):
        folder = Path(draft) / target.name
        folder.mkdir()
        for name, text in texts.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
            if name.endswith(".sh"):
                (folder / name).chmod(0o777 & ~_umask())
        folder.replace(target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _target(path: Path) -> Path:
    """The file itself; Path.resolve has no word for links in a circle."""
    return Path(os.path.realpath(path))


def _is_device(target: Path) -> bool:
    return target.exists() and not target.is_file()


def _refused(path: Path, reason: str, remedy: str) -> PlannerError:
    return PlannerError(f"cannot write {path}: {reason}; {remedy}")


@contextmanager
def _in_words(path: Path, remedy: str, where: str = "") -> Iterator[None]:
    """Turns what the system says against writing a path into a line that says what to do."""
    try:
        yield
    except OSError as error:
        raise _refused(path, where + (error.strerror or "write failed"), remedy) from error
