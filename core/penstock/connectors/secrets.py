"""Credentials from files, for kinds whose other side asks for a login.

A Secret is a folder with one file for each key, as Kubernetes mounts it: in a cluster the operator mounts
those that a Topology's sources and sinks name; for `penstock run` they lie beside the manifest. They are read
where they are used, and never stand in a plan, a message or a log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import PermanentError

ENV_SECRETS = "PENSTOCK_SECRETS"
"""Names the folder that has a folder for each Secret."""


def secrets_folder(base_dir: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Where Secrets are: the folder that the environment names, else `secrets` beside the manifest."""
    named = environment.get(ENV_SECRETS)
    return Path(named) if named else base_dir / "secrets"


class Secret:
    """The Secret `name` below `secrets`. Raises PermanentError, in a sentence, where something is missing."""

    def __init__(self, name: str, secrets: Path) -> None:
        self.name = name
        self.folder = secrets / name
        if not self.folder.is_dir():
            raise PermanentError(
                f"Secret {name} is not there: {self.folder} is no folder; make it with one file for each "
                f"key, or let {ENV_SECRETS} name the folder that it is in"
            )

    def has(self, key: str) -> bool:
        return (self.folder / key).is_file()

    def file(self, key: str, needed_for: str = "") -> str:
        """The path, for others to read."""
        self.text(key, needed_for)
        return str(self.folder / key)

    def text(self, key: str, needed_for: str = "") -> str:
        """What it holds; a newline at the end is an editor's."""
        why = f"; {needed_for}" if needed_for else ""
        try:
            text = (self.folder / key).read_text(encoding="utf-8").strip("\r\n")
        except FileNotFoundError:
            raise PermanentError(
                f"Secret {self.name} has no key {key} (looked for in {self.folder}){why}"
            ) from None
        except OSError as error:
            raise PermanentError(
                f"key {key} of Secret {self.name} cannot be read: {error.strerror}"
            ) from None
        except UnicodeDecodeError:
            raise PermanentError(f"key {key} of Secret {self.name} is not UTF-8") from None
        if not text:
            raise PermanentError(f"key {key} of Secret {self.name} is empty{why}")
        return text

    @property
    def digest(self) -> int:
        """Of all keys: another one when something changed. It holds within one process only."""
        files = sorted(path for path in self.folder.iterdir() if path.is_file())
        return hash(tuple((path.name, path.read_bytes()) for path in files))
