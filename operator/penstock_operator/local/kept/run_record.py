"""The state directory of `penstock run`: what a run leaves for the next one, and who may use it.

    run.json        which topology the store holds, and what of it must not change (`identity`)
    topology.yaml   the manifest of the last run, with its overrides
    lock            held while a run goes on, and by its sentinel until nothing of it is left
    store/          the private store
    workers/        launch and log files
    decisions.jsonl what the latency SLAs decided (`decision_log`)

Neighbours: `local_run` decides by it whether to resume, `sentinel` inherits the lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from penstock.dataflow.identity import differences
from penstock.dataflow.sink_folder import sync_folder
from penstock.dataflow.state_schema import declared_in, may_become
from penstock.errors import PermanentError
from penstock_operator.local.kept.decision_log import FILE as DECISIONS

FORMAT = 1
_LOCK_WAIT_S = 10.0
_LOCK_PAUSE_S = 0.05


class StateInUseError(PermanentError):
    """Another run holds the state directory."""


class StateUnusableError(PermanentError):
    """The state does not fit this topology, or cannot be read; `--fresh` would remove it."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What `run.json` holds. `shards` are all shards by stage; `sink_files` all files that the topology may
    have written, as absolute paths; `runs` counts its runs, this one included."""

    format: int
    topology: str
    topology_uid: str
    created: str
    runs: int
    identity: dict[str, str]
    shards: dict[str, tuple[str, ...]]
    sink_files: tuple[str, ...]
    state: dict[str, dict[str, str]] = field(default_factory=dict)
    """Operator -> state variable -> what it was declared as, in words, in the runs before or in this one."""

    def next_run(
        self, identity: Mapping[str, str], shards: Mapping[str, Sequence[str]], sink_files: Sequence[str]
    ) -> RunRecord:
        """The record of the run that resumes this one; new shards and files come on top, and what `identity`
        has more."""
        return replace(
            self,
            runs=self.runs + 1,
            identity=dict(identity),
            shards={
                stage: tuple(sorted({*self.shards.get(stage, ()), *names})) for stage, names in shards.items()
            },
            sink_files=tuple(sorted({*self.sink_files, *sink_files})),
        )


class Start(StrEnum):
    """How a run begins: on nothing, on what the last one left, or on nothing after removing that."""

    FIRST = "first"
    RESUME = "resume"
    FRESH = "fresh"


class StateDirectory:
    """One topology's state on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: int | None = None

    @property
    def store_folder(self) -> Path:
        return self.folder / "store"

    @property
    def workers_folder(self) -> Path:
        return self.folder / "workers"

    def lock(self, sleep: Callable[[float], None] = time.sleep) -> int:
        """Take the directory for this run; answers the lock's file descriptor.

        Waits a moment for the end of a run that was killed just now. Raises StateInUseError.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        for _ in range(int(_LOCK_WAIT_S / _LOCK_PAUSE_S)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if _is_alive(holder := _holder(descriptor)):
                    os.close(descriptor)
                    raise StateInUseError(
                        f"Process {holder} runs this topology already with the state in {self.folder}: "
                        "wait for it, stop it, or use another --state-dir."
                    ) from None
                sleep(_LOCK_PAUSE_S)
                continue
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            self._lock = descriptor
            return descriptor
        os.close(descriptor)
        raise StateInUseError(
            f"What a killed run left behind still holds {self.folder}: "
            "end its processes, or use another --state-dir."
        )

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def read(self) -> RunRecord | None:
        """The record of the last run, None when there was none. Raises StateUnusableError."""
        path = self.folder / "run.json"
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            record = msgspec.json.decode(data, type=RunRecord)
        except msgspec.DecodeError as error:
            raise StateUnusableError(f"{path} cannot be read ({error}): start anew with --fresh.") from error
        if record.format != FORMAT:
            raise StateUnusableError(
                f"{path} has format {record.format}, this Penstock writes {FORMAT}: start anew with --fresh."
            )
        return record

    def write(self, record: RunRecord) -> None:
        """Replace the record, whole or not at all."""
        path = self.folder / "run.json"
        draft = path.with_suffix(".json.new")
        with draft.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_folder(self.folder)

    def write_manifest(self, text: str) -> Path:
        """Keep the manifest that the run was started with: a worker that starts later reads the same one."""
        path = (self.folder / "topology.yaml").absolute()
        path.write_text(text, encoding="utf-8")
        return path

    def write_spark_key(self, key: str) -> Path:
        """For this user's eyes only: who has it may join the workers' Spark masters."""
        path = (self.folder / "spark-key").absolute()
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(key)
        return path

    def remove_state(self, sink_files: Iterable[Path]) -> int:
        """Forget everything, and remove these files; answers how many of them there were.

        The record goes last: a removal that is cut short is taken up by the next one.
        """
        removed = 0
        for file in sink_files:
            try:
                file.unlink()
            except FileNotFoundError:
                continue
            removed += 1
        for folder in (self.store_folder, self.workers_folder):
            if folder.exists():
                shutil.rmtree(folder)
        (self.folder / DECISIONS).unlink(missing_ok=True)
        (self.folder / "run.json").unlink(missing_ok=True)
        return removed


def decide_start(
    record: RunRecord | None,
    identity: Mapping[str, str],
    earlier_files: Sequence[Path],
    folder: Path,
    *,
    fresh: bool,
) -> Start:
    """Pure. `earlier_files` are files in the sinks' folders that bear the names of this topology's.

    Raises StateUnusableError, which lists what differs when the stored state is not this topology's.
    """
    if fresh:
        return Start.FRESH
    if record is None:
        if earlier_files:
            raise StateUnusableError(
                f"There is no state in {folder}, but {earlier_files[0].parent} holds output of an earlier "
                f"run ({len(earlier_files)} files): move it away, or use --fresh to remove it."
            )
        return Start.FIRST
    changed = differences(record.identity, identity)
    if changed:
        listed = "\n".join(f"  {line}" for line in changed)
        raise StateUnusableError(
            f"The state in {folder} belongs to another form of this topology:\n{listed}\n"
            "Undo the change, or use --fresh to remove the state and start anew."
        )
    return Start.RESUME


def check_state(
    record: RunRecord,
    declared: Mapping[str, Mapping[str, str]],
    worked: Collection[str],
    folder: Path,
) -> RunRecord:
    """The record with the state that the code declares now, by operator and variable. Pure.

    `worked` are the operators that have worked on rows, and so may have state; variables of theirs that are
    gone stay recorded, as their state does, unless the code deletes them ("" as words). Raises
    StateUnusableError for one that is declared as what the stored one cannot become. Tasks compare too, with
    what lies beside the state itself; here it is before anything starts.
    """
    before = {operator: record.state.get(operator, {}) for operator in worked}
    changed = [
        f"  {operator}, state {name!r}: was {before[operator][name]}, is {now}"
        for operator in sorted(before)
        for name, now in declared.get(operator, {}).items()
        if now and not _may_become(before[operator].get(name, now), now)
    ]
    if changed:
        listed = "\n".join(changed)
        raise StateUnusableError(
            f"The state in {folder} was declared as something else by the code that wrote it:\n{listed}\n"
            "Give the variable a new name, undo the change, or use --fresh to start anew without the state."
        )
    merged = {
        operator: {**before.get(operator, {}), **declared.get(operator, {})}
        for operator in {*before, *declared}
    }
    kept = {
        operator: {name: text for name, text in found.items() if text} for operator, found in merged.items()
    }
    return replace(record, state={operator: found for operator, found in kept.items() if found})


def _may_become(before: str, now: str) -> bool:
    was, is_ = declared_in(before), declared_in(now)
    return before == now or (was is not None and is_ is not None and may_become(was, is_))


def _holder(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0)
    return int(text) if text.isdigit() else 0


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
