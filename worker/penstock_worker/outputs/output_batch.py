"""The outputs of one commit: rows by target, packed into entries.

Neighbours: `steps` and `edges` put rows here, `source_stage` and `keyed_stage` commit what comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PermanentError
from penstock.store.codec import encode_batch
from penstock.store.even_rows import (
    HEAD_BYTES_MAX,
    STAMP_BYTES_MAX,
    Cells,
    even_cells,
    even_entry,
    rows_of,
)
from penstock.store.fragments import fragments_of
from penstock.store.letters import Letter
from penstock.store.port import Bounds, Output
from penstock.store.stamps import as_array
from penstock_worker.values.column_rows import ColumnRows
from penstock_worker.values.even_columns import even_columns
from penstock_worker.values.held import Held
from penstock_worker.values.rows import WireRow, no_unicode
from penstock_worker.values.wire_values import shown

ENTRY_ROWS_MAX = 256
"""A task downstream works on an entry at a time at the least; what its rows come to should fit a commit."""

Gathered = tuple[list[int], list[WireRow]]
"""Timestamps and rows for one target, equally long."""


class OutputRefused(PermanentError):
    """A row cannot be put out: it is too large, or holds what is no text; the message says which."""


class OutputBatch:
    """The outputs of one commit of `shard`: rows by target, packed into entries by `drain`.

    `held` says how many rows may be held on the way here, `initial` that they are initial state.
    """

    __slots__ = (
        "_bounds", "_cells", "_columns", "_external", "_initial", "_shard", "_targets", "drained_bytes",
        "held", "latest_us", "letters", "spent",
    )  # fmt: skip

    def __init__(self, bounds: Bounds, shard: str, held: Held, *, initial: bool = False) -> None:
        self.held = held
        self._initial = initial
        self.drained_bytes = 0
        """What `drain` answered last came to."""
        self._bounds = bounds
        self._shard = shard
        self._targets: dict[str, Gathered] = {}
        self._cells: dict[str, list[tuple[Cells, NDArray[np.int64]]]] = {}
        """Packed rows and timestamps of targets to which no others were put."""
        self._columns: dict[str, Sequence[str]] = {}
        self._external: set[str] = set()
        self.latest_us: dict[str, int] = {}
        """Latest event times, by where they were declared."""
        self.letters: list[tuple[str, Letter]] = []
        """Steps, and rows that they failed on."""
        self.spent: frozenset[str] = frozenset()
        """Steps that were tried again often enough."""

    def target(self, name: str, columns: Sequence[str]) -> Gathered:
        """The lists that rows for the shard `name` are to be appended to; `columns` are their names."""
        gathered = self._targets.get(name)
        if gathered is None:
            gathered = self._targets[name] = ([], [])
            self._columns[name] = columns
        if self._cells:
            for cells, stamps_us in self._cells.pop(name, ()):
                gathered[0].extend(stamps_us.tolist())
                gathered[1].extend(rows_of(cells))
        return gathered

    def external(self, sink: str, columns: Sequence[str]) -> Gathered:
        """The same for a sink outside."""
        self._external.add(sink)
        return self.target(sink, columns)

    def put_external(
        self, sink: str, columns: Sequence[str], rows: Sequence[WireRow], timestamps_us: Sequence[int]
    ) -> None:
        """Rows for a sink outside."""
        if type(rows) is ColumnRows and (even := even_columns(rows)) is not None:
            self._external.add(sink)
            self.put_cells(sink, columns, even_cells(even, len(rows)), as_array(timestamps_us))
            return
        gathered_us, gathered = self.external(sink, columns)
        gathered_us.extend(timestamps_us)
        gathered.extend(rows)

    def put_cells(
        self, name: str, columns: Sequence[str], cells: Cells, stamps_us: NDArray[np.int64]
    ) -> None:
        """The same of rows that are packed already (`store.even_rows`), for any target. They stay so where
        all of the target's are."""
        gathered = self._targets.get(name)
        if self._initial or (gathered is not None and gathered[1]):
            gathered_us, rows = self.target(name, columns)
            gathered_us.extend(stamps_us.tolist())
            rows.extend(rows_of(cells))
        else:
            self._columns[name] = columns
            self._cells.setdefault(name, []).append((cells, stamps_us))

    def drain(self) -> tuple[Output, ...]:
        """Everything gathered as entries, and nothing is left here. Raises OutputRefused."""
        outputs: list[Output] = []
        for name, (timestamps, rows) in self._targets.items():
            if rows:
                self._pack(name, timestamps, rows, outputs)
        for name, parts in self._cells.items():
            for cells, stamps_us in parts:
                self._pack_cells(name, cells, stamps_us, outputs)
        self._targets.clear()
        self._cells.clear()
        self.drained_bytes = sum([len(output.payload) for output in outputs])
        return tuple(outputs)

    def _pack_cells(
        self, name: str, cells: Cells, stamps_us: NDArray[np.int64], outputs: list[Output]
    ) -> None:
        """Packed rows as entries, which go to the end of `outputs`."""
        is_external = name in self._external
        rows_max = (self._bounds.entry_bytes_max - HEAD_BYTES_MAX) // (cells.shape[1] + STAMP_BYTES_MAX)
        if rows_max < 1:
            self._pack(name, stamps_us.tolist(), rows_of(cells), outputs)
            return
        if not is_external:
            rows_max = min(rows_max, ENTRY_ROWS_MAX)
        for start in range(0, len(cells), rows_max):
            some = cells[start : start + rows_max]
            payload = even_entry(stamps_us[start : start + rows_max], some)
            outputs.append(Output(name, payload, len(some), is_external))

    def _pack(
        self, name: str, timestamps: Sequence[int], rows: Sequence[WireRow], outputs: list[Output]
    ) -> None:
        """Rows as entries, which go to the end of `outputs`."""
        if len(rows) > ENTRY_ROWS_MAX and name not in self._external:
            for start in range(0, len(rows), ENTRY_ROWS_MAX):
                end = start + ENTRY_ROWS_MAX
                self._pack(name, timestamps[start:end], rows[start:end], outputs)
            return
        try:
            payload = encode_batch(timestamps, rows, initial=self._initial)
        except UnicodeEncodeError:
            raise OutputRefused(f"a row for {name}: {no_unicode(rows, self._columns[name])}") from None
        if len(payload) <= self._bounds.entry_bytes_max:
            outputs.append(Output(name, payload, len(rows), name in self._external))
            return
        if len(rows) == 1:
            outputs.extend(self._fragments(name, payload, rows[0]))
            return
        # A little more pieces than bytes ask for, since rows differ in size.
        pieces = min(len(rows), len(payload) * 5 // (self._bounds.entry_bytes_max * 4) + 1)
        step = -(-len(rows) // pieces)
        for start in range(0, len(rows), step):
            self._pack(name, timestamps[start : start + step], rows[start : start + step], outputs)

    def _fragments(self, name: str, payload: bytes, row: WireRow) -> Iterable[Output]:
        """The entries of a row that is larger than one."""
        if len(payload) > self._bounds.row_bytes_max:
            raise OutputRefused(
                f"a row for {name} takes {len(payload)} bytes; {self._bounds.row_bytes_max} are the most for "
                f"one row. Put out several smaller ones; the row is {shown(tuple(row))}"
            )
        pieces = fragments_of(self._shard, payload, self._bounds.entry_bytes_max)
        for number, piece in enumerate(pieces, 1):
            yield Output(name, piece, int(number == len(pieces)), name in self._external)
