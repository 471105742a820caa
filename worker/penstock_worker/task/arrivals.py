"""Batches that come along with their shards' claims. Pure. Neighbour: `task.loop` asks for both at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.store.ownership import OwnedShard
from penstock.store.port import Claim, Claimed, FetchedShard


def without_stale(
    shards: Sequence[FetchedShard],
    claims: Sequence[Claim],
    answers: Sequence[Any],
    owned: Mapping[str, OwnedShard],
) -> tuple[FetchedShard, ...]:
    """Without those that were handed out along with their claim, and then went on with what their last
    owner had left: that may be in the batch, and its commits have listed them anew."""
    granted = [(claim.shard, answer) for claim, answer in zip(claims, answers, strict=True)]
    began = {shard: answer.commit for shard, answer in granted if isinstance(answer, Claimed)}

    def is_fresh(shard: str) -> bool:
        mine = owned.get(shard)
        return mine is None or shard not in began or mine.number == began[shard]

    return tuple(fetched for fetched in shards if is_fresh(fetched.shard))
