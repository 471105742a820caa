"""Partitions that are added to a source while `penstock run` reads it, as a worker announces them in a
cluster.

Looking asks others over the network, so it has a thread. Neighbours: `local_run` asks for news and has shards
made, `run_placement` puts them on executors; `penstock.dataflow.partitions` looks.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.dataflow.partitions import shards_of
from penstock.dataflow.plan import Plan
from penstock.dataflow.source import Source
from penstock.errors import PenstockError

EVERY_S = 5.0


class AddedPartitions:
    """Of the sources of `plan` that grow. What cannot be looked at now is looked at again."""

    def __init__(self, plan: Plan, base_dir: Path) -> None:
        self._base_dir = base_dir
        self._stages = [stage for stage in plan.stages if isinstance(stage.head, Source) and stage.head.grows]
        self._found: dict[str, tuple[str, ...]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="partitions", daemon=True)

    def start(self) -> None:
        if self._stages:
            self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def beyond(self, shards: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """operator -> shards that were found and are none of these, by operator."""
        added = {
            operator: tuple(name for name in found if name not in set(shards[operator]))
            for operator, found in list(self._found.items())
        }
        return {operator: names for operator, names in added.items() if names}

    def look(self) -> None:
        for stage in self._stages:
            try:
                self._found[stage.operator] = shards_of(stage, self._base_dir)
            except PenstockError:
                # Its readers say what is wrong with it.
                continue

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            self.look()
