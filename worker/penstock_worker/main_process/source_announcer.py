"""A thread that tells which partitions the topology's sources have, as this worker finds them.

In a cluster nobody else sees what they read: the operator makes the sources' shards from these rows. Apart
from the main loop, because to look through a large folder takes a while. Neighbours:
`penstock.dataflow.partitions` looks, `penstock.metrics.rows` is the row.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.dataflow.partitions import shards_of
from penstock.dataflow.plan import Plan, Stage
from penstock.dataflow.source import Source
from penstock.errors import PenstockError
from penstock.manifest.document import SHARDS_MAX
from penstock.metrics.rows import PartitionsRow, pack, partitions_row_name
from penstock.store.port import NodeStore, PutMetrics
from penstock_worker.process.clock import Clock

_LOG = logging.getLogger(__name__)

EVERY_S = 5.0
_SOURCE_BYTES_MAX = 1 << 20
"""A Schedule has to fit into an object of Kubernetes."""


class SourceAnnouncer:
    """`store` is a connection of this thread's own."""

    def __init__(self, launch: WorkerLaunch, plan: Plan, store: NodeStore, clock: Clock) -> None:
        self._launch = launch
        self._sources = [(stage, stage.head) for stage in plan.stages if isinstance(stage.head, Source)]
        self._store = store
        self._clock = clock
        self._generation = 0
        self._due = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="sources", daemon=True)
        self._told: dict[str, str] = {}
        self.announced: tuple[str, ...] = ()
        """The sources whose partitions stand in the store."""

    def start(self) -> None:
        self._thread.start()

    def under(self, generation: int) -> None:
        """The store's generation, as the main loop last saw it; another one has everything told again."""
        if generation != self._generation:
            self._generation = generation
            self._due.set()

    def stop(self) -> None:
        self._stopped = True
        self._due.set()
        self._thread.join(timeout=EVERY_S)
        self._store.close()

    def _run(self) -> None:
        while not self._stopped:
            try:
                self.announce()
            except PenstockError as error:
                _LOG.warning("source partitions are not announced: %s", error)
            self._due.wait(EVERY_S)
            self._due.clear()

    def announce(self) -> None:
        """Look, and write one row for each source."""
        rows = [self._row(stage, source) for stage, source in self._sources]
        if rows:
            self._store.call(
                PutMetrics(tuple((partitions_row_name(row.operator), pack(row)) for row in rows))
            )
        self.announced = tuple(row.operator for row in rows if not row.message)

    def _row(self, stage: Stage, source: Source) -> PartitionsRow:
        shards: tuple[str, ...] = ()
        message = ""
        try:
            shards = shards_of(stage, Path(self._launch.base_dir))
        except (PenstockError, OSError) as error:
            message = str(error)
        size = sum(len(shard.encode()) for shard in shards)
        if len(shards) > SHARDS_MAX or size > _SOURCE_BYTES_MAX:
            message = (
                f"source {stage.operator} has {len(shards)} {source.parts_are} "
                f"whose names take {size} bytes; at most {SHARDS_MAX} {source.parts_are} "
                f"with {_SOURCE_BYTES_MAX} bytes of names can be read"
            )
            shards = ()
        if message and message != self._told.get(stage.operator):
            _LOG.warning("source %s: its partitions are not known: %s", stage.operator, message)
        self._told[stage.operator] = message
        return PartitionsRow(
            operator=stage.operator,
            worker=self._launch.worker,
            uid=self._launch.uid,
            generation=self._generation,
            at_us=self._clock.now_us(),
            shards=shards,
            message=message,
        )
