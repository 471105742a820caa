"""The sinks' folders of a run: claimed for its state before anything starts, held while it goes on.

What another state has is neither written into nor removed, by `--fresh` neither. Neighbours: `run_start`
asks, `penstock.dataflow.sink_folder` says whose a folder is (record 0025).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.dataflow.plan import Plan
from penstock.dataflow.sink_files import sink_folders
from penstock.dataflow.sink_folder import (
    FolderOwner,
    claim_folder,
    hold_folder,
    owner_of,
    release_folder,
    taken,
)
from penstock.errors import PermanentError


class SinkFolders:
    """Of `plan`, run with the state in `state_folder`. `known_uid` is the state that this holds; "" for none.

    A folder is this run's own when its owner is that state, or one that was in the same state folder, and may
    have been removed by hand.
    """

    def __init__(self, plan: Plan, base_dir: Path, state_folder: Path, known_uid: str) -> None:
        self._topology = plan.topology
        self._state = str(state_folder.absolute())
        self._known_uid = known_uid
        self._sinks = sink_folders(plan, base_dir)

    def refuse_others(self) -> None:
        """Raises FolderTaken when a folder is another state's."""
        for folder, sink in self._sinks.items():
            with _faults(folder, sink):
                found = owner_of(folder)
            if found is not None and not self._is_own(found):
                raise taken(folder, found, self._owner(self._known_uid or "new", sink))

    def removable(self, files: Iterable[Path]) -> set[Path]:
        """Those in folders that nobody else has. Raises FolderTaken when a run is under way that writes there
        (then its state folder was removed, and it was not ended)."""
        files = set(files)
        own: set[Path] = set()
        for folder in {file.parent for file in files}:
            with _faults(folder, self._sinks.get(folder, "")):
                found = owner_of(folder)
                if found is not None and not self._is_own(found):
                    continue
                if found is not None:
                    os.close(hold_folder(folder))
            own.add(folder)
        return {file for file in files if file.parent in own}

    def claim(self, uid: str, *, durable: bool, anew: bool) -> list[int]:
        """Make all folders the state's; `anew`: also those of the one before it. Answers the descriptors that
        hold them while they are open. Raises FolderTaken; PermanentError for a folder that cannot be made."""
        held = []
        for folder, sink in self._sinks.items():
            with _faults(folder, sink):
                folder.mkdir(parents=True, exist_ok=True)
                found = owner_of(folder)
                if anew and found is not None and found.uid != uid and self._is_own(found):
                    os.close(hold_folder(folder))
                    release_folder(folder)
                claim_folder(folder, self._owner(uid, sink), durable=durable)
                held.append(hold_folder(folder))
        return held

    def _owner(self, uid: str, sink: str) -> FolderOwner:
        return FolderOwner(uid, self._topology, sink, self._state)

    def _is_own(self, found: FolderOwner) -> bool:
        return found.uid == self._known_uid or found.state == self._state


@contextmanager
def _faults(folder: Path, sink: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PermanentError(
            f"folder {folder} cannot be written into ({error.strerror}); mend that, or give sink {sink} "
            "another path"
        ) from error
