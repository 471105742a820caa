"""What a run with routing tables computes: the same as without, on other shards in the end.

A key's rows may be in the files of several shards: what one shard wrote of it is in order and without a hole,
and all together is everything once. Neighbours: `workload` has the rest, `table_hand` makes the tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from penstock.dataflow.routing import Router
from penstock.dataflow.routing_table import RoutingTable
from penstock.store.fragments import decode_fragment, is_fragment
from penstock_simulation.protocol.workload import SHARDS, Counts, OutOfOrder, Row, Workload, expected_state
from penstock_worker.stages.control_entries import is_control

_key = msgspec.msgpack.Decoder(tuple[int]).decode


def is_same_operator(one: str, other: str) -> bool:
    return one.split("/", 1)[0] == other.split("/", 1)[0]


def is_key_state(shard: str, payload: bytes) -> bool:
    """Whether what waits for a shard is the state of a key, or a mark of a table."""
    if is_fragment(payload):
        return is_same_operator(decode_fragment(payload).producer, shard)
    return is_control(payload)


class Rerouted(Workload):
    """`tables` are the newest of both keyed operators."""

    def __init__(self, partitions: Mapping[str, Sequence[tuple[int, ...]]]) -> None:
        super().__init__(partitions)
        self.tables: dict[str, RoutingTable] = {}

    def truth(self) -> Mapping[str, Counts]:
        return expected_state(
            cast("Mapping[str, Sequence[Row]]", self.partitions),
            self._router("mid", len(SHARDS.mid)),
            self._router("end", len(SHARDS.end)),
        )

    def _router(self, operator: str, shards: int) -> Router:
        table = self.tables.get(operator)
        return Router(["int"], shards, {_key(key): shard for key, shard in table.keys} if table else None)

    def counted_with(self, shard: str) -> str:
        """A row that waits to be tried again is put out by the shard that its key has come to."""
        return shard.split("/", 1)[0]

    def wrong_outside(self, sinks: Mapping[str, bytes]) -> str:
        everywhere: dict[tuple[int, int], list[int]] = defaultdict(list)
        for shard, content in sinks.items():
            last: Counts = Counter()
            for start in range(0, len(content), 3):
                class_, key, number = content[start : start + 3]
                if number <= last[class_, key]:
                    raise OutOfOrder(f"sink of {shard}: row {number} of {(class_, key)} behind {last}")
                last[class_, key] = number
                everywhere[class_, key].append(number)
        truth: Counts = Counter()
        for shard in sinks:
            truth += self.truth()[shard]
        for of, numbers in everywhere.items():
            if sorted(numbers) != list(range(1, truth[of] + 1)):
                return f"sinks have rows {sorted(numbers)} of {of}, not {truth[of]}"
        return "" if everywhere.keys() == truth.keys() else "sinks lack rows"
