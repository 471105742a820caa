"""Dead letters of keys that a routing table has taken to another shard.

A letter stays where it was written, under the name that people know it by. When it is to be worked on again,
that has to be done where its key's state is: its shard takes it away and sends it there, within an order, by
one commit. Where the key is on its way just then, the letter stays and says so. Neighbours: `receiving` asks
before an order is carried out, `letter_box` keeps letters.
"""

from __future__ import annotations

import msgspec

from penstock.dataflow.plan import Processor
from penstock.dataflow.routing_table import moved_count
from penstock.dataflow.wire_keys import wire_router
from penstock.store import letters as lying
from penstock.store.fragments import fragments_of
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, NodeStore, Output, StateWrite, TableVersions
from penstock_worker.stages.arriving_version import ArrivingVersion
from penstock_worker.stages.failing_code import FailingCode
from penstock_worker.stages.table_shelf import TableShelf
from penstock_worker.state.encoding import pack

_DECODER = msgspec.msgpack.Decoder(tuple)

Elsewhere = tuple[list[StateWrite], list[Output]]
"""What the commit writes and puts out that is through with an order whose letter is worked on elsewhere."""


class MovedLetters:
    """Of one task's keyed stage."""

    def __init__(
        self,
        operator: str,
        head: Processor,
        failing: FailingCode,
        shelf: TableShelf,
        store: NodeStore,
        bounds: Bounds,
    ) -> None:
        self._operator = operator
        self._moved = moved_count(operator)
        self._hashed = wire_router(head.key_types, head.shards)
        self._failing = failing
        self._shelf = shelf
        self._store = store
        self._bounds = bounds

    def elsewhere(
        self, owned: OwnedShard, payload: bytes, version: ArrivingVersion | None
    ) -> Elsewhere | None:
        """What becomes of an order whose letter's key is not here; None: it is carried out here. `version` is
        the one that the shard is carrying out. Raises OwnershipLost, StoreUnreachable."""
        order = self._failing.ordered(owned, payload)
        letter = None if order is None else order.replayed
        if order is None or letter is None or letter.key is None or order.operator != self._operator:
            return None
        number = int(owned.shard.rpartition("/")[2])
        place = self._place(owned, number, pack(letter.key), version)
        if place == number:
            return None
        if place is None:
            words = f"its key is on its way to {owned.shard}: have it worked on again once it is there"
            return self._failing.kept_again(owned, order, words), []
        carried = lying.encode_carried(self._operator, letter)
        pieces = [carried]
        if len(carried) > self._bounds.entry_bytes_max:
            pieces = fragments_of(owned.shard, carried, self._bounds.entry_bytes_max)
        outputs = [Output(f"{self._operator}/{place}", piece, 0) for piece in pieces]
        return self._failing.forgotten(owned, order), outputs

    def _place(
        self, owned: OwnedShard, number: int, key: bytes, version: ArrivingVersion | None
    ) -> int | None:
        """The number of the shard where a key's state is, or goes, as far as is known here; None: it is on
        its way to this one."""
        newest = max(self._store.call(TableVersions(self._operator)), default=0)
        if not newest:
            return number
        table = self._shelf.table(self._operator, newest)
        if table is None:
            return None
        move = next((one for one in table.moves if one.key == key), None)
        if move is None:
            placed = dict(table.keys).get(key)
            return self._hashed(_DECODER.decode(key)) if placed is None else placed
        under_way = version if version is not None and version.version == newest else None
        is_over = owned.counted_so_far(self._moved) >= newest
        if move.target == number:
            has_come = is_over or (under_way is not None and not under_way.awaits(key))
            return number if has_come else None
        if move.source == number and not is_over and (under_way is None or not under_way.has_sent(key)):
            return number
        return move.target
