"""The paper's application on hosts: a store, an agent and a worker with a task of each operator on every one.

Nodes, Schedules and tables are those of `two_nodes`. The operator's hand, which is this process, reaches
stores by their sockets in the file system, so that what links count is what nodes send each other.
Neighbours: `synthetic` and `reconfiguration` run streams on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from bench.locality.hosts import Host, LinkBytes
from bench.locality.streams import PAUSE, Stream, set_stream
from bench.locality.topology import FIRST, SECOND, SHARDS_EACH, SOURCE, locality_plan
from bench.locality.worker import Application
from bench.two_nodes import START_S, Nodes, NodesFailedError, eventually

from penstock.dataflow.routing_table import RoutingTable, next_table
from penstock.dataflow.wire_keys import wire_router
from penstock.errors import PenstockError
from penstock.schedule.record import ExecutorPlace
from penstock.store.port import Failures, ReadPairs, ShardCounters, StateSnapshot, Weigh
from penstock_worker.state import encoding

MANIFEST = "application.json"
REST_S = 180.0
_TOTAL = encoding.field_prefix(encoding.VALUE, "total")
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[Any, ...]).decode

Key = tuple[Any, ...]


class System:
    """While used as a context. Sources have no stream at first."""

    def __init__(
        self,
        folder: Path,
        hosts: Sequence[Host],
        types: tuple[str, str],
        *,
        sink: bool,
        locality: bool = True,
    ) -> None:
        self.folder = folder
        self.hosts = list(hosts)
        self.types = types
        application = Application(len(hosts), types, sink, locality)
        (folder / MANIFEST).write_bytes(msgspec.json.encode(application))
        self.plan = locality_plan(len(hosts), types, sink=sink, locality=locality)
        names = [f"n{number}" for number in range(len(hosts))]
        self.nodes = Nodes(
            folder,
            {f"w{number}": name for number, name in enumerate(names)},
            "bench.locality.worker",
            MANIFEST,
            self.plan,
            dict(zip(names, hosts, strict=True)),
        )
        self.executors = [
            ExecutorPlace(f"{operator}-w{number}", f"w{number}", 1)
            for operator in (SOURCE, FIRST, SECOND)
            for number in range(len(hosts))
        ]
        self.tables: dict[str, RoutingTable] = {}

    def __enter__(self) -> System:
        try:
            self._start()
        except BaseException:
            self.nodes.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.nodes.stop()

    def _start(self) -> None:
        runs = {
            operator: {
                f"{operator}/{part}": f"{operator}-w{part % len(self.hosts)}"
                for part in range(len(self.hosts) * (1 if operator == SOURCE else SHARDS_EACH))
            }
            for operator in (SOURCE, FIRST, SECOND)
        }
        self.nodes.begin(self.executors, runs)
        self.nodes.start_stores()
        self.nodes.wait_applied()
        self.nodes.start_workers()
        self.nodes.wait_running(self.executors)

    # --- where keys are

    def host_of(self, operator: str) -> list[int]:
        """The host of each shard's home."""
        return [shard % len(self.hosts) for shard in range(len(self.hosts) * SHARDS_EACH)]

    def shard_by_hash(self, operator: str, key: Key) -> int:
        type_ = self.types[0 if operator == FIRST else 1]
        return wire_router((type_,), len(self.hosts) * SHARDS_EACH)(key)

    def put_keys(self, operator: str, keys: Mapping[Key, int]) -> RoutingTable | None:
        """Have `keys` go to these shards, and all others where their hash says; wait until that is carried
        out. None where it is so already."""
        packed = {_pack(key): shard for key, shard in keys.items()}
        before = self.tables.get(operator)
        if packed == (dict(before.keys) if before is not None else {}):
            return None
        type_ = self.types[0 if operator == FIRST else 1]
        route = wire_router((type_,), len(self.hosts) * SHARDS_EACH)
        upstream = SOURCE if operator == FIRST else FIRST
        producers = list(self.nodes.schedules[upstream].shards)
        table = next_table(before, packed, lambda key: route(_unpack(key)), producers)
        self.put_table(operator, table)
        self.wait_carried_out(operator, table)
        return table

    def put_table(self, operator: str, table: RoutingTable) -> None:
        self.nodes.put_table(operator, table)
        self.tables[operator] = table

    def wait_carried_out(self, operator: str, table: RoutingTable, seconds: float = REST_S) -> None:
        def is_carried_out() -> bool:
            self.nodes.check()
            return self.nodes.is_carried_out(operator, table)

        eventually(is_carried_out, f"table {table.version} of {operator} is carried out", seconds)

    # --- what flows

    def set_stream(self, stream: Stream) -> None:
        set_stream(self.folder, stream)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Sources give no rows meanwhile, and all that they gave has arrived."""
        (self.folder / PAUSE).touch()
        try:
            self.wait_at_rest()
            yield
        finally:
            (self.folder / PAUSE).unlink()

    def wait_at_rest(self) -> None:
        """Until nothing is under way. Sources pause."""
        shards = self.shards()
        before: dict[str, int] = {}

        def is_at_rest() -> bool:
            nonlocal before
            self.nodes.check()
            seen = self.nodes.counters(shards)
            if len(seen) < len(shards):
                return False
            commits = {shard: one.commit for shard, one in seen.items()}
            same, before = commits == before, commits
            return same and not any(one.inbox_entries or one.outbox_entries for one in seen.values())

        eventually(is_at_rest, "nothing is under way", REST_S, every_s=0.3)

    def shards(self, *operators: str) -> list[str]:
        names = operators or (SOURCE, FIRST, SECOND)
        return [shard for name in names for shard in self.nodes.schedules[name].shards]

    def counters(self, operator: str) -> dict[str, ShardCounters]:
        return self.nodes.counters(self.shards(operator))

    def done(self, operator: str) -> int:
        """Rows that an operator has worked off since the start. Raises NodesFailedError where a store gives
        no answer."""
        seen = self.counters(operator)
        if len(seen) < len(self.shards(operator)):
            raise NodesFailedError("a store gives no answer")
        return sum(one.completed_rows for one in seen.values())

    def links(self) -> list[LinkBytes]:
        return [host.link() for host in self.hosts]

    def pairs(self) -> dict[str, bytes]:
        """The rows of counted pairs of all stores."""
        return {
            name: row
            for node in self.nodes.nodes
            for name, row in self.nodes.store(node).call(ReadPairs()).items()
        }

    def state_bytes(self) -> dict[str, float]:
        """Operator -> what its state takes."""
        found = {FIRST: 0.0, SECOND: 0.0}
        for operator in found:
            for shard, place in self.nodes.schedules[operator].shards.items():
                (weight,) = self.nodes.store(place.home).call(Weigh((shard,)))
                found[operator] += weight or 0
        return found

    def homes(self) -> dict[str, dict[str, str]]:
        return {
            operator: {shard: place.home for shard, place in schedule.shards.items()}
            for operator, schedule in self.nodes.schedules.items()
        }

    def check_nothing_lost(self) -> int:
        """At rest: each row that was read has been counted once by each operator. Answers how many; raises
        NodesFailedError."""
        read = self.done(SOURCE)
        for operator in (FIRST, SECOND):
            counted = sum(self._counted(operator))
            if counted != read:
                raise NodesFailedError(f"{read} rows were read, {operator} has counted {counted}")
        for node in self.nodes.nodes:
            if failures := self.nodes.store(node).call(Failures()):
                raise NodesFailedError(f"user code failed on {node}: {failures}")
        return read

    def _counted(self, operator: str) -> Iterator[int]:
        for shard, place in self.nodes.schedules[operator].shards.items():
            try:
                state = self.nodes.store(place.home).call(StateSnapshot(shard))
            except PenstockError as error:
                raise NodesFailedError(f"the state of {shard} cannot be read: {error}") from error
            for (collection, field), value in state.items():
                if not collection and field.startswith(_TOTAL):
                    yield _unpack(value)[0]


def started(system: System) -> None:
    """Wait until rows arrive."""
    eventually(lambda: system.done(SECOND) > 0, "rows arrive", START_S)
