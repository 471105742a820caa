"""State that a stage's cache lacks, from the store. Neighbour: `task.loop` asks before it works."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import FetchedShard, NodeStore
from penstock_worker.stages.work import StageWork


def load_state(
    store: NodeStore, stage: StageWork, work: Iterable[tuple[OwnedShard, FetchedShard]]
) -> list[str]:
    """Fill the caches for all of `work` in one round trip; answers the shards that turned out to be lost."""
    wanted = [(owned, load) for owned, fetched in work if (load := stage.wanted(owned, fetched)) is not None]
    if not wanted:
        return []
    lost = []
    answers = store.pipeline([load for _, load in wanted])
    for (owned, load), answer in zip(wanted, answers, strict=True):
        try:
            stage.loaded(owned, load, answer)
        except OwnershipLost:
            lost.append(owned.shard)
    return lost
