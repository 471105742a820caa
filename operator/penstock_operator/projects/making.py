"""A small project of a user's own, written from a template: a topology that runs, its code, input and test.

The templates are files beside this, with `@NAME@` and `@MODULE@` where the project's are to stand; `.tmpl`
goes from their names. Neighbour: `cli.new`.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from penstock.errors import PermanentError

TEMPLATES = ("count", "windows", "join", "kafka")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUFFIX = ".tmpl"


class BadProjectName(PermanentError):
    """A project cannot be called so; the text says what is right."""


class ProjectExists(PermanentError):
    """Something is there already."""


def module_of(name: str) -> str:
    """What the Python module of a project is called. Raises BadProjectName."""
    from penstock.manifest.document import NAME_LENGTH_MAX

    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise BadProjectName(
            f"{name!r} is no name for a project: give at most {NAME_LENGTH_MAX} small letters, digits "
            "and '-', with a letter first, such as word-count; the project becomes a folder of this name here"
        )
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or importlib.util.find_spec(module) is not None:
        raise BadProjectName(
            f"{name!r} would make a Python module {module!r}, and Python has one of that name already; give "
            f"another name, such as my-{name}"
        )
    return module


def make_project(name: str, template: str, parent: Path) -> tuple[Path, ...]:
    """Write the project into the folder `parent/name`, and answer its files, relative to that. Raises
    BadProjectName, ProjectExists, OSError."""
    module, folder = module_of(name), parent / name
    try:
        folder.mkdir()
    except FileExistsError:
        raise ProjectExists(
            f"{folder} is there already, and nothing was changed; give another name, or move it away"
        ) from None
    written = []
    for relative, text in _texts(files(__package__) / "templates" / template):
        path = folder / relative.replace("MODULE", module).removesuffix(_SUFFIX)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("@NAME@", name).replace("@MODULE@", module), encoding="utf-8")
        written.append(path.relative_to(folder))
    return tuple(sorted(written))


def _texts(folder: Traversable, below: str = "") -> list[tuple[str, str]]:
    """The files of a template by their paths, and what stands in them."""
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _texts(entry, f"{below}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            found.append((below + entry.name, entry.read_text(encoding="utf-8")))
    return found
