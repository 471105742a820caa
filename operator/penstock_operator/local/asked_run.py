"""A run on this machine, or what it left, to be asked about: its store is up, or is started for a while.

Neighbours: `opened_store` opens the store, `processes.answering_process` reads it, `asking` is the same for a
cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.kept_questions import Opening
from penstock_operator.asking.asked_shards import AskedShards, AskedTopology
from penstock_operator.local.opened_store import opened_store
from penstock_operator.local.processes.answering_process import AnsweringProcess

_ONLY = "local"
"""There is one store."""


@contextmanager
def asked_run(folder: Path) -> Iterator[AskedTopology]:
    """The run in a state directory. Raises what `opened_store` raises, and InvalidManifest."""
    with opened_store(folder) as opened, closing(AnsweringProcess()) as line:
        homes = {shard: _ONLY for shards in opened.shards.values() for shard in shards}
        shards = AskedShards(line, Opening(opened.topology_uid, {_ONLY: opened.url}, homes))
        plan = compile_topology(load_topology(folder / "topology.yaml"))
        yield AskedTopology(shards, plan, opened.is_running, "by the next run")
