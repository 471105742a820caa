"""Dead letters that go to a sink, under seeded faults: each is there once, in its order, whatever is killed,
fenced and moved meanwhile.

Every row that `end` works on becomes a letter too. So what the sink of letters has of a shard must be what
the sink of rows has.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.letter_columns import DEAD_LETTERS, LETTER_SCHEMA
from penstock.dataflow.on_error import DEAD_LETTER, OnError
from penstock.dataflow.plan import Fanout, Stage, Tasks
from penstock.store.codec import decode_batch
from penstock.store.dead_letters import Place
from penstock.store.letters import ROWS, Letter
from penstock_simulation.protocol.stages import SimulatedSinks
from penstock_simulation.protocol.world import Parts, simulate
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.stages.letter_box import LetterBox
from penstock_worker.stages.spared_calls import Refused, SparedCalls
from penstock_worker.state.cache import Key, ShardState
from penstock_worker.values.held import ONE_ROW, Held
from penstock_worker.values.letter_rows import InputRecord, LetterRows
from penstock_worker.values.rows import WireRow

TO_SINK = OnError(DEAD_LETTER, to_sink=True)
KINDS = {"still": Parts(), "moving": Parts(moves=True), "full": Parts(pressure=True)}
SEEDS = 20
END = "end/"
RECORD = LETTER_SCHEMA.names.index("record")


class Doubting(SparedCalls):
    """Takes all rows, and refuses them too."""

    def run(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held = ONE_ROW,
        given: Iterable[Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        made = super().run(state, key, rows, now_ms, held, given)
        self.refused.extend(Refused(ROWS, key, [row], "doubted") for row in rows)
        return made


class DoubtingStage(KeyedStage):
    """A keyed stage whose letters go to a sink."""

    def __init__(self, operator: str, head: Any, runner: Any, cache: Any, *others: Any, **named: Any) -> None:
        stage = Stage(
            operator,
            head,
            Tasks(1, 1, 1),
            Fanout(head.input, (), (), ()),
            on_error=TO_SINK,
            dead_letters=ConsoleSink(DEAD_LETTERS),
        )
        letters = LetterBox(stage, cache.load)
        super().__init__(operator, head, runner, cache, *others, on_error=TO_SINK, letters=letters, **named)


class Files(defaultdict[str, bytearray]):
    """By shard. Bytes that are written again are the same."""

    def __init__(self) -> None:
        super().__init__(bytearray)

    def put(self, shard: str, start: int, content: bytes) -> None:
        file = self[shard]
        assert start <= len(file), f"a hole in {shard}"
        there = bytes(file[start : start + len(content)])
        assert content.startswith(there), f"other bytes in {shard}"
        file[start : start + len(content)] = content


class SinksOfBoth(SimulatedSinks):
    """Keeps what is written to both sinks behind `end`."""

    letters = Files()
    rows = Files()

    def __init__(self, stage: Stage, write: Any) -> None:
        def kept(shard: str, start: int, content: bytes) -> None:
            write(shard, start, content)
            if shard.startswith(END):
                self.rows.put(shard, start, content)

        super().__init__(stage, kept)
        self._writers[DEAD_LETTERS] = LetterFiles(self.letters)


class LetterFiles:
    """Three bytes a letter, as the rows of the other sink have. A `SinkWriter`."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def write(self, shard: str, position: bytes, entries: Sequence[tuple[int, bytes]]) -> bytes:
        start = int(position or b"0")
        records = [json.loads(row[RECORD]) for _, payload in entries for row in decode_batch(payload).rows]
        content = bytes(value for record in records for value in list(record.values())[:3])
        self._files.put(shard, start, content)
        return b"%d" % (start + len(content))

    def check(self, shard: str, position: bytes) -> None:
        """Nobody else writes there."""

    def sync(self, shard: str) -> None:
        """There is no disk."""

    def close(self) -> None:
        """Nothing is open."""


def by_key(content: bytes) -> dict[int, list[bytes]]:
    """The rows of each key, in their order."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for at in range(0, len(content), 3):
        found[content[at]].append(bytes(content[at : at + 3]))
    return found


def wrong(seed: int, parts: Parts) -> str:
    """What of a run is not as it has to be, "" for nothing."""
    SinksOfBoth.letters.clear()
    SinksOfBoth.rows.clear()
    outcome = simulate(seed, parts)
    if outcome.broken:
        return f"seed {seed}, turn {outcome.turns}: {outcome.broken}"
    rows = {shard: by_key(content) for shard, content in SinksOfBoth.rows.items() if content}
    letters = {
        shard: by_key(content)
        for shard, content in SinksOfBoth.letters.items()
        if content and shard.startswith(END)
    }
    return "" if rows == letters else f"seed {seed}: letters are {letters}, rows {rows}"


class BriefRows(LetterRows):
    """Entries of the simulation have few bytes: a letter is its record alone."""

    def of(self, place: Place, letter: Letter, input_record: InputRecord | None) -> list[WireRow] | None:
        rows = super().of(place, letter, input_record)
        return rows and [
            tuple(value if at == RECORD else None for at, value in enumerate(row)) for row in rows
        ]


@pytest.fixture(autouse=True)
def doubting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_worker.stages.failing_code.SparedCalls", Doubting)
    monkeypatch.setattr("penstock_worker.stages.letter_box.LetterRows", BriefRows)


@pytest.mark.parametrize("kind", KINDS)
def test_letters_in_a_sink_are_neither_lost_nor_doubled_nor_out_of_order(kind: str) -> None:
    parts = replace(KINDS[kind], keyed=DoubtingStage, sinks=SinksOfBoth)
    found = [one for one in (wrong(seed, parts) for seed in range(SEEDS)) if one]
    assert not found, "\n".join(found[:10])


class Remembering(Doubting):
    """Keeps what it refused for a batch that was worked anew."""

    def clear(self) -> None:
        self.refused = self.refused[-4:]


def test_letters_of_a_batch_that_come_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_worker.stages.failing_code.SparedCalls", Remembering)
    parts = replace(KINDS["still"], keyed=DoubtingStage, sinks=SinksOfBoth)
    assert any(wrong(seed, parts) for seed in range(3))
