"""What a shard's state was declared as: kind and schema of each variable, kept beside the state itself.

It is one field of the shard's value hash, so it goes wherever the state goes: to the next owner, to another
store, to a worker with other code. That one compares before it works on a row, and refuses what it would
misread. Variables that are new are added; those that are gone stay noted, as their state stays, unless the
code deletes them. A variable whose schema became another one keeps all that it had (decision 0031).
Neighbours: `cache` reads and writes the field, `handle` says what is declared, `evolution` reads values of
earlier schemas, `inspect_code` tells it to those who run a topology.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from penstock.dataflow.state_schema import Declared, may_become, words
from penstock_worker.state import encoding
from penstock_worker.state.evolution import SCHEMAS_MAX, StampedStored, Stored

FIELD = b"s"
"""Of the value hash; no other field is one byte long."""


class Noted(msgspec.Struct, frozen=True, array_like=True):
    """One variable. `schemas` are the newest; `history` all that values had, by number, where there were
    several."""

    kind: bytes
    schemas: tuple[str, ...]
    history: tuple[str, ...] = ()

    @property
    def declared(self) -> Declared:
        return self.kind, self.schemas

    @property
    def value_schemas(self) -> tuple[str, ...]:
        return self.history or self.schemas[-1:]


_DECODER = msgspec.msgpack.Decoder(dict[str, Noted])


@dataclass(frozen=True, slots=True)
class Standing:
    """What a shard's note comes to for the code at hand.

    `refusal`: why the code cannot work on that state, "" where it can. `to_note`: what is to be noted now,
    None where nothing is new. `stored`: how the values of each variable are read, None as they are.
    `deleted`: the variables, by what their fields begin with, whose state is to go.
    """

    refusal: str
    to_note: bytes | None
    stored: tuple[Stored | None, ...]
    deleted: tuple[bytes, ...]


class Declaration:
    """What a processor's code declares, and the names of the variables that it deletes."""

    def __init__(
        self, variables: Iterable[tuple[str, bytes, tuple[str, ...]]], deleted: Iterable[str] = ()
    ) -> None:
        self._declared: dict[str, Declared] = {name: (kind, schemas) for name, kind, schemas in variables}
        self._deleted = frozenset(deleted)

    def standing(self, raw: bytes | None) -> Standing:
        """The code's, where `raw` was noted. Nothing is noted by shards from before there were notes."""
        before: dict[str, Noted] = {} if raw is None else _DECODER.decode(raw)
        notes = {name: note for name, note in before.items() if name not in self._deleted}
        gone = [encoding.field_prefix(before[name].kind, name) for name in sorted({*before} - {*notes})]
        wrong = []
        for name, now in self._declared.items():
            note = notes.get(name)
            if note is None:
                notes[name] = Noted(*now)
            elif (next_note := _followed(note, now)) is not None:
                notes[name] = next_note
            else:
                wrong.append(
                    f"state {name!r} is {words(note.declared)} in the store, and {words(now)} in the code"
                )
        return Standing(
            _refusal(wrong),
            encoding.pack(notes) if notes != before else None,
            tuple(_stored(notes[name]) for name in self._declared) if not wrong else (),
            tuple(gone),
        )


def _followed(note: Noted, now: Declared) -> Noted | None:
    """The note of a variable that is declared as `now`; None where its state would be misread."""
    if note.declared == now:
        return note
    history, schema = note.value_schemas, now[1][-1]
    if schema not in history:
        history = (*history, schema)
    earlier = ((note.kind, (*note.schemas[:-1], one)) for one in history)
    if len(history) > SCHEMAS_MAX or not all(may_become(one, now) for one in earlier):
        return None
    return Noted(now[0], now[1], history)


def _stored(note: Noted) -> Stored | None:
    history = note.history
    if len(history) < 2:
        return None
    kind = StampedStored if note.kind in encoding.EXPIRING else Stored
    return kind(history, history.index(note.schemas[-1]))


def _refusal(wrong: list[str]) -> str:
    if not wrong:
        return ""
    return (
        f"{'; '.join(wrong)}. What is stored would be misread: give the variable a new name, bring the code "
        "back as it was, or start anew without the state. A schema may gain, lose and reorder fields, and "
        "whole numbers and floats may become wider"
    )
