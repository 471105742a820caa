"""What one process asks another about state: one side knows the store, the other what lies there.

Neighbours: `penstock_worker.state.stored_state` answers, `penstock state` asks.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ShardSeen(msgspec.Struct, frozen=True):
    """A shard, under the generation and the epoch by which its state can be read."""

    shard: str
    generation: int
    epoch: int


class StateQuestion(msgspec.Struct, frozen=True):
    """The state of `key` (wire values), which is in the one shard that is named; or with None the keys of all
    shards, at most `most`. `key_types` are the operator's, `now_ms` is by the steady clock."""

    url: str
    topology_uid: str
    shards: list[ShardSeen]
    key_types: list[str]
    key: list[Any] | None
    most: int
    now_ms: int


class StateAnswer(msgspec.Struct, frozen=True):
    """`variables` are what a key's hold, by name: a value, a list of values, or a list of pairs of key and
    value, each an object by columns. `keys` are wire values. `refused`: the shards whose owner has changed,
    who are to be asked for anew."""

    variables: dict[str, Any] = {}
    keys: list[list[Any]] = []
    refused: list[str] = []
