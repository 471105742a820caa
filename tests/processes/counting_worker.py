"""A worker of `counting_plan` over a real store, as a thread or a process of its own (`counting_process`).

Neighbour: `sparkless_worker` is what it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from penstock.api.launch.worker_launch import WorkerLaunch
from penstock.store.port import NodeStore
from penstock.store.redis.store import RedisStore
from penstock_worker.process.clock import SystemClock
from processes.counting_plan import UID, CountedRows, Row, counting_plan
from processes.sparkless_worker import SparklessWorker

LOOK_S = 0.05
TURN_S = 0.002


class CountingWorker:
    """One start of it. `between` stands between it and its store."""

    def __init__(
        self,
        name: str,
        store_url: str,
        rows: Mapping[str, Sequence[Row]],
        shards: int = 4,
        between: Callable[[NodeStore], NodeStore] = lambda store: store,
        *,
        tables: bool = False,
    ) -> None:
        self.name = name
        self.uid = f"uid-{name}"
        self.step_s = 0.0
        """From one batch of a source to the next."""
        self.part = 1.0
        """How much of each source is let through."""
        launch = WorkerLaunch(
            topology_uid=UID,
            manifest="",
            base_dir="/",
            worker=name,
            uid=self.uid,
            attempt=0,
            store_id="",
            store_url=store_url,
            runtime="cluster",
        )
        self._worker = SparklessWorker(
            launch,
            counting_plan(shards, tables=tables),
            lambda: between(RedisStore(store_url, UID)),
            SystemClock(),
            lambda *_: CountedRows(rows, lambda: self.part, lambda: self.step_s),
            look_s=LOOK_S,
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(10)
        self._worker.close()

    def run(self) -> None:
        """Until stopped."""
        while not self._stopped.wait(TURN_S):
            self.turn()

    def turn(self) -> None:
        """All that is due."""
        self._worker.turn()
