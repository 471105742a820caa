"""Whose a sink's folder is: one topology's state has it, and nobody else writes into it.

File names come from operators and shards, so two topologies of one manifest, or one that was deleted and
applied anew, would write into the same files. The file `.penstock-owner` in the folder names the state that
has it. It is made whole and at once (a link, which is atomic on NFS too), by `penstock run` before anything
starts, else by the first task that writes; each writer reads it before it opens a file. Any number of
processes of one state may claim. Neighbours: `sink_files` names the files, the worker's `sinks.jsonl` and
`penstock run` claim. Record 0025.
"""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.errors import PermanentError

OWNER_FILE = ".penstock-owner"
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""What a file system without hard links answers; there, the file is seen before it is written."""
_READ_TRIES = 20
_READ_PAUSE_S = 0.05


class FolderTaken(PermanentError):
    """The folder is another state's, or a run that is under way writes into it."""


class FolderOwner(msgspec.Struct, frozen=True):
    """`uid` is the state's (a TaskLaunch's topology_uid), and all that counts; the rest is for people.
    `state` is the state folder of `penstock run`, absolute."""

    uid: str
    topology: str
    sink: str
    state: str = ""

    def __str__(self) -> str:
        of = f", with the state in {self.state}" if self.state else ""
        return f"topology {self.topology} (state {self.uid}{of})"


def owner_of(folder: Path, sleep: Callable[[float], None] = time.sleep) -> FolderOwner | None:
    """Who has the folder; None when nobody has. Raises FolderTaken for an owner file that says nothing, and
    OSError."""
    path = folder / OWNER_FILE
    for _ in range(_READ_TRIES):
        try:
            return msgspec.json.decode(path.read_bytes(), type=FolderOwner)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            sleep(_READ_PAUSE_S)
    raise FolderTaken(f"{path} cannot be read: remove it if no topology writes into that folder")


def claim_folder(folder: Path, owner: FolderOwner, *, durable: bool = False) -> None:
    """Make the folder, which is there, `owner`'s, unless it is already.

    `durable`: so that it is found after a loss of power. Raises FolderTaken, and OSError.
    """
    found = owner_of(folder)
    if found is None:
        _write(folder, owner, durable=durable)
        found = owner_of(folder)
    if found is not None and found.uid != owner.uid:
        raise taken(folder, found, owner)


def taken(folder: Path, found: FolderOwner, owner: FolderOwner) -> FolderTaken:
    """The words for a folder that is `found`'s and that `owner` was to have."""
    return FolderTaken(
        f"folder {folder} holds the output of {found}, and this is {owner}: move the folder away or remove "
        f"it, or give sink {owner.sink} another path"
    )


def hold_folder(folder: Path) -> int:
    """Lock the owner file for as long as the answered descriptor is open: a run is under way.

    Raises FolderTaken when another process has locked it, and OSError.
    """
    descriptor = os.open(folder / OWNER_FILE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise FolderTaken(
            f"a run that is under way writes into folder {folder}: wait for it, or stop it"
        ) from None
    except OSError as error:
        if error.errno != errno.ENOLCK:  # a file system without locks: the owner file alone has to do
            os.close(descriptor)
            raise
    return descriptor


def release_folder(folder: Path) -> None:
    """Nobody has the folder any more; its files are there still."""
    (folder / OWNER_FILE).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """What was made or renamed in the folder is found after a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(folder: Path, owner: FolderOwner, *, durable: bool) -> None:
    """Write the owner file, unless it is there by now."""
    data = msgspec.json.encode(owner) + b"\n"
    descriptor, draft = tempfile.mkstemp(prefix=f"{OWNER_FILE}.", dir=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, 0o644)
            file.flush()
            if durable:
                os.fsync(descriptor)
        with suppress(FileExistsError):
            _link(draft, folder / OWNER_FILE, data)
        if durable:
            sync_folder(folder)
    finally:
        os.unlink(draft)


def _link(draft: str, path: Path, data: bytes) -> None:
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as file:
            file.write(data)
