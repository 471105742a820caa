"""The twin's part about routing tables, and pairs of keys that were counted."""

from __future__ import annotations

from penstock.store.memory.topology import Handlers, MemoryTopology
from penstock.store.port import (
    PAIR_NAMES_MAX,
    Answer,
    DropPairs,
    DropTable,
    PairNames,
    PutPairs,
    PutTable,
    ReadPairs,
    ReadTable,
    TableVersions,
)


class MemoryTables(MemoryTopology):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={
                PutTable: self._put_table,
                DropTable: self._drop_table,
                PutPairs: self._put_pairs,
                DropPairs: self._drop_pairs,
            },
            reads={
                TableVersions: self._table_versions,
                ReadTable: self._read_table,
                PairNames: self._pair_names,
                ReadPairs: self._read_pairs,
            },
        )

    def _put_table(self, call: PutTable) -> Answer:
        self._data.tables.setdefault(call.operator, {})[call.version] = call.content
        return Answer.OK

    def _drop_table(self, call: DropTable) -> Answer:
        self._data.tables.get(call.operator, {}).pop(call.version, None)
        return Answer.OK

    def _table_versions(self, call: TableVersions) -> tuple[int, ...]:
        return tuple(sorted(self._data.tables.get(call.operator, ())))

    def _read_table(self, call: ReadTable) -> bytes | None:
        return self._data.tables.get(call.operator, {}).get(call.version)

    def _put_pairs(self, call: PutPairs) -> Answer:
        self._data.pairs[call.name] = call.row
        return Answer.OK

    def _drop_pairs(self, call: DropPairs) -> Answer:
        for name in call.names:
            self._data.pairs.pop(name, None)
        return Answer.OK

    def _pair_names(self, _: PairNames) -> tuple[str, ...]:
        return tuple(self._data.pairs)[:PAIR_NAMES_MAX]

    def _read_pairs(self, _: ReadPairs) -> dict[str, bytes]:
        return dict(self._data.pairs)
