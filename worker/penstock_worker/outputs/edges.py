"""Rows on their way to the shards of a keyed stage.

Neighbours: `steps` feeds them behind a stage's rows, `output_batch` gathers what they put.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from penstock.dataflow.column_routing import ColumnRouter
from penstock.dataflow.interval_join import EVENT_TIME, LEFT, RIGHT
from penstock.dataflow.plan import KeyedEdge, Projection
from penstock.dataflow.routing import Key, Router
from penstock.dataflow.schema import Schema
from penstock.dataflow.wire_keys import routing_keys
from penstock.store.even_rows import EvenTexts, even_cells
from penstock.store.stamps import as_array
from penstock_worker.outputs.output_batch import Gathered, OutputBatch, OutputRefused
from penstock_worker.values.column_rows import COLUMNS_FROM, ColumnRows
from penstock_worker.values.even_columns import even_columns
from penstock_worker.values.rows import WireRow, no_unicode

SHARD_ROWS_MIN = 32
"""Columns are sooner cut by shards than rows are from `COLUMNS_FROM` rows and so many for each shard on."""


class EdgeRunner:
    """Puts rows to the shards of one keyed stage."""

    def __init__(self, edge: KeyedEdge, schema: Schema) -> None:
        types = [schema.columns[column].type for column in edge.key_columns]
        self.edge = edge
        self.types = tuple(types)
        self.row_types = [column.type for column in schema.columns]
        self.route: Callable[[Key], int] = Router(types, edge.shards).route
        """Where keys go. Who routes by tables puts another one here before rows are fed."""
        self.tap: Callable[[Sequence[WireRow]], None] | None = None
        """Is shown rows before they are fed. Who counts pairs of keys puts one here."""
        self._operator = edge.operator
        self._columns: Sequence[str] = schema.names
        self._project: Callable[[WireRow], WireRow] | None = None
        if edge.projection is not None:
            self._project = _projecting(edge.projection)
            self._columns = (*(schema.names[at] for at in edge.key_columns), EVENT_TIME, LEFT, RIGHT)
        self._names = [f"{edge.operator}/{shard}" for shard in range(edge.shards)]
        self._keys_of = routing_keys(edge.key_columns, types)
        self._hash = self.route
        self._by_column: ColumnRouter | None = None
        if edge.projection is None and ColumnRouter.knows(types):
            self._by_column = ColumnRouter(types, edge.shards)
        self.takes_columns = self._by_column is not None and not edge.locality
        """Whether it cuts columns by shards, as long as they are even and many."""
        self._shards_met = edge.shards
        """So many got rows of the last batch that was large enough to tell."""

    @property
    def columns_from(self) -> int:
        """Fewer rows are sooner cut as rows, by the shards that those before went to."""
        return COLUMNS_FROM + SHARD_ROWS_MIN * self._shards_met

    def feed(self, rows: Sequence[WireRow], timestamps_us: Sequence[int], into: OutputBatch) -> None:
        """Raises OutputRefused for a key that is no Unicode."""
        if type(rows) is ColumnRows and self._feed_columns(rows, timestamps_us, into):
            return
        if self.tap is not None:
            self.tap(rows)
        try:
            self._feed(rows, timestamps_us, into)
        except UnicodeEncodeError:
            raise OutputRefused(f"a row for {self._operator}: {no_unicode(rows, self._columns)}") from None

    def _feed_columns(self, rows: ColumnRows, timestamps_us: Sequence[int], into: OutputBatch) -> bool:
        """Cut columns by their shards; False where these go as rows: by a table, few to a shard, uneven."""
        router = self._by_column
        if router is None or self.tap is not None or self.route is not self._hash:
            return False
        if len(rows) < self.columns_from or (columns := even_columns(rows)) is None:
            return False
        keys = [columns[place] for place in self.edge.key_columns]
        shards = router.shards_of(
            [key.cells if isinstance(key, EvenTexts) else key for key in keys], len(rows)
        ).astype(np.uint32 if self.edge.shards > 1 << 16 else np.uint16)  # the fewer bits, the sooner sorted
        order = np.argsort(shards, kind="stable")
        shards = shards[order]
        begins = [0, *(np.flatnonzero(shards[1:] != shards[:-1]) + 1).tolist(), len(rows)]
        self._shards_met = len(begins) - 1
        if len(rows) < self.columns_from:
            return False
        cells, stamps_us = even_cells(columns, len(rows))[order], as_array(timestamps_us)[order]
        for begin, end in pairwise(begins):
            name = self._names[int(shards[begin])]
            into.put_cells(name, self._columns, cells[begin:end], stamps_us[begin:end])
        return True

    def _feed(self, rows: Sequence[WireRow], timestamps_us: Sequence[int], into: OutputBatch) -> None:
        route, names, project = self.route, self._names, self._project
        slots: dict[int, Gathered] = {}
        for key, row, timestamp_us in zip(self._keys_of(rows), rows, timestamps_us, strict=True):
            shard = route(key)
            slot = slots.get(shard)
            if slot is None:
                slot = slots[shard] = into.target(names[shard], self._columns)
            slot[0].append(timestamp_us)
            slot[1].append(row if project is None else project(row))
        if len(rows) >= COLUMNS_FROM:
            self._shards_met = len(slots)


def _projecting(of: Projection) -> Callable[[WireRow], WireRow]:
    """A row of one input of a join -> one of the join's."""
    key_columns, at = of.key_columns, of.event_column

    def left(row: WireRow) -> WireRow:
        return (*[row[column] for column in key_columns], row[at], row, None)

    def right(row: WireRow) -> WireRow:
        return (*[row[column] for column in key_columns], row[at], None, row)

    return right if of.side else left
