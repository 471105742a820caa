"""Shards, and who owns them, as commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.store.port import Answer, Claim, Claimed, Create, ExternalCursor, Moved, Reopen
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CallForm, PartsForm, RedisRole, answer, answer_or_moved


class RedisClaims(RedisRole):
    """A part of `redis.calls`."""

    writes = ("create", "reopen", "claim")
    reads = ()

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            Create: CallForm(self._create, answer),
            Reopen: CallForm(self._reopen, answer_or_moved),
            Claim: CallForm(self._claim, _claimed),
        }

    def _create(self, call: Create) -> Command:
        source = b"1" if call.source else b"0"
        head = self._heads["create"]
        return (*head, call.shard, call.table_version, call.position, source, self._bounds, call.life)

    def _reopen(self, call: Reopen) -> Command:
        return (*self._heads["reopen"], call.shard)

    def _claim(self, call: Claim) -> Command:
        owner = call.owner
        head = self._heads["claim"]
        return (*head, call.shard, owner.executor, owner.incarnation, owner.ready, call.version)


def _claimed(call: Claim, reply: Any) -> Claimed | Answer | Moved:
    if isinstance(reply, bytes) or reply[0] == b"MOVED":
        return answer_or_moved(call, reply)
    epoch, generation, commit, offset, position, table_version, finished, within, counts, watermark_ms = (
        reply[:10]
    )
    external = {
        reply[at].decode(): ExternalCursor(*reply[at + 1 : at + 5]) for at in range(10, len(reply), 5)
    }
    return Claimed(
        epoch, generation, commit, offset, position, table_version, external, finished == 1, within, counts,
        watermark_ms or None,
    )  # fmt: skip
