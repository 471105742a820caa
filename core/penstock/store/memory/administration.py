"""The twin's part about a store's opening, and the topologies in it."""

from __future__ import annotations

from penstock.store.memory.node import TopologyData
from penstock.store.memory.topology import Handlers, MemoryTopology
from penstock.store.port import (
    KeepTopologies,
    OpenStore,
    ProtocolMismatch,
    ReadGeneration,
    Retract,
    SomeTopologies,
    Topologies,
    TopologiesAmong,
)


class MemoryAdministration(MemoryTopology):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={
                OpenStore: self._open_store,
                Retract: self._retract,
                KeepTopologies: self._keep_topologies,
            },
            reads={
                ReadGeneration: self._read_generation,
                Topologies: self._topologies,
                TopologiesAmong: self._topologies_among,
                SomeTopologies: self._some_topologies,
            },
        )

    def _open_store(self, call: OpenStore) -> int:
        if self._node.store_id not in {"", call.store_id}:
            raise ProtocolMismatch(f"this store is {self._node.store_id!r}, not {call.store_id!r}")
        node = self._node
        if node.generation and call.run_id and call.run_id == node.run_id:
            return node.generation
        node.store_id, node.run_id = call.store_id, call.run_id
        node.generation += 1
        return node.generation

    def _read_generation(self, _: ReadGeneration) -> int:
        return self._node.generation

    def _retract(self, _: Retract) -> int:
        self._node.topologies[self._uid] = TopologyData(retracted=True)
        return 0

    def _topologies(self, _: Topologies) -> list[str]:
        return sorted(uid for uid, data in self._node.topologies.items() if data.listed)

    def _topologies_among(self, call: TopologiesAmong) -> list[str]:
        return sorted({*call.uids} & {*self._topologies(Topologies())})

    def _some_topologies(self, call: SomeTopologies) -> tuple[int, list[str]]:
        named = self._topologies(Topologies())
        return len(named), named[: call.count]

    def _keep_topologies(self, call: KeepTopologies) -> None:
        for uid, data in self._node.topologies.items():
            data.listed = data.listed and uid in call.uids
