"""What a resident task is started with; travels to its Spark task by pickle."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.dataflow.plan import Stage
from penstock.store.node_clock import ClockAnchor
from penstock.store.port import Bounds, Owner
from penstock_worker.task.note import NotePlace


@dataclass(frozen=True, slots=True)
class Poison:
    """What tasks have crashed at again and again: `key` (as it is noted) in the batch behind the shard's
    commit number `commits`. `words` say how."""

    shard: str
    commits: int
    key: str
    words: str


@dataclass(frozen=True, slots=True)
class TaskLaunch:
    """`owner.ready` names the task's ready list and is new for every start of a task."""

    topology_uid: str
    store_url: str
    worker: str
    owner: Owner
    task: int
    stage: Stage
    base_dir: str
    durable: bool
    """Mode Disk: a sink's bytes are synced before they are acknowledged."""
    bounds: Bounds
    template: str = ""
    """Of the worker's code; its failures are reported under it."""
    prints: bool = False
    """Rows of console sinks are printed by the task, and not by somebody else."""
    node: str = ""
    """Where it runs, when not on its worker's own node."""
    note: NotePlace | None = None
    """What its main process reads of it; None for a task on another node."""
    careful: bool = False
    """One like it has crashed: it writes down each key that it comes to."""
    topology: str = ""
    """Its name, for people."""
    anchor: ClockAnchor | None = None
    """What its worker's clock goes by."""

    poison: tuple[Poison, ...] = ()
    """Of its executor."""

    batch_door: str = ""
    """Where the main process calls the function of a sink that is a stage of its own."""

    @property
    def executor(self) -> str:
        return self.owner.executor

    @property
    def name(self) -> str:
        return f"{self.owner.executor}.{self.task}"
