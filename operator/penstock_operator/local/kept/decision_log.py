"""The last decisions of a topology's SLAs and on its routing tables, kept in its state directory as JSON
lines (`decisions.jsonl`).

A line is written when a decision is made, another one when it is known what it brought; a line that a kill
cut short is passed over. Neighbours: `penstock.sla.loop` and `penstock.locality.loop` write, `explain`
shows.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

import msgspec

from penstock.control.decision import PolicyDecision
from penstock.control.locality.locality_decision import LocalityDecision
from penstock.locality import record as tables
from penstock.locality.record import TablesBrought, TablesRecord
from penstock.sla.decision_record import Brought, DecisionRecord, record_of

FILE = "decisions.jsonl"
KEPT = 500
_TRIM_AT = 2 * KEPT


_LINE = msgspec.json.Decoder(DecisionRecord | Brought | TablesRecord | TablesBrought)

Kept = DecisionRecord | TablesRecord
"""A decision to keep an SLA, or on tables."""


class DecisionLog:
    """The file of one topology, written by one process. Lines are in the file when a method returns."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        records = read_kept(folder)
        self._next = records[-1].number + 1 if records else 1
        self._lines = _trim(self._path, records)

    def decided(self, decision: PolicyDecision, sla: str, *, dry_run: bool) -> int:
        """Keep `decision`; answers its number."""
        number = self._next
        self._next += 1
        self._append(record_of(decision, number, sla, dry_run=dry_run))
        return number

    def brought(self, outcome: Brought) -> None:
        """Keep what an earlier one came to."""
        self._append(outcome)

    def tables_decided(self, decision: LocalityDecision, *, dry_run: bool) -> int:
        """Keep a decision on tables; answers its number."""
        number = self._next
        self._next += 1
        self._append(tables.record_of(decision, number, dry_run=dry_run))
        return number

    def tables_brought(self, outcome: TablesBrought) -> None:
        """Keep what an earlier one came to."""
        self._append(outcome)

    def _append(self, line: Kept | Brought | TablesBrought) -> None:
        if self._lines >= _TRIM_AT:
            self._lines = _trim(self._path, read_kept(self._path.parent))
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            # A line that is missing is no reason to end a run that waits for room.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        self._lines += 1


def read_decisions(folder: Path) -> tuple[DecisionRecord, ...]:
    """As `read_kept`, those that kept an SLA."""
    return tuple(record for record in read_kept(folder) if isinstance(record, DecisionRecord))


def read_kept(folder: Path) -> tuple[Kept, ...]:
    """The decisions in `folder`, the oldest first, each with what it brought where that is known. OSError
    where the file cannot be read."""
    try:
        data = (folder / FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    records: dict[int, Kept] = {}
    for line in data.splitlines():
        try:
            found = _LINE.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(found, DecisionRecord | TablesRecord):
            records[found.number] = found
            continue
        before = records.get(found.number)
        if (isinstance(found, Brought) and isinstance(before, DecisionRecord)) or (
            isinstance(found, TablesBrought) and isinstance(before, TablesRecord)
        ):
            records[found.number] = msgspec.structs.replace(before, brought=found)
    return tuple(records[number] for number in sorted(records))


def _trim(path: Path, records: Iterable[Kept]) -> int:
    """Write the last of `records` anew, whole or not at all; answers how many lines there are."""
    kept = list(records)[-KEPT:]
    if not kept:
        return 0
    draft = path.with_suffix(".new")
    draft.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in kept))
    draft.replace(path)
    return len(kept)
