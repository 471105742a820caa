"""Rows larger than an entry: cut, gathered by whoever reads the pair, in whatever steps they come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.store_backends import MemoryBackend
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.outline import ConsoleTarget
from penstock.store.codec import decode_timestamps, encode_batch
from penstock.store.fragments import Gathering, decode_fragment, fragments_of, is_fragment
from penstock.store.port import Answer, Append, Bounds, Measure
from penstock_operator.local.showing.console_delivery import ConsoleDelivery
from scenes.large_scene import LargeScene
from scenes.store_scenario import Scene, out

ROW = encode_batch([7], [("x" * 5_000,)])
SMALL_ROW = encode_batch([8, 9], [("a",), ("b",)])


def test_pieces_fit_entries_and_make_up_the_row() -> None:
    pieces = fragments_of("source/α", ROW, 600)
    assert all(len(piece) <= 600 and is_fragment(piece) for piece in pieces)
    assert [decode_fragment(piece).is_last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    ((number, payload),) = Gathering().whole(enumerate(pieces, 5))
    assert (number, payload) == (4 + len(pieces), ROW)
    assert not is_fragment(ROW)
    assert decode_timestamps(payload) == [7]


def test_batches_and_rows_in_pieces_come_out_in_order_however_they_are_read() -> None:
    entries = list(enumerate([SMALL_ROW, *fragments_of("s/0", ROW, 900), SMALL_ROW], 1))
    whole = [(1, SMALL_ROW), (len(entries) - 1, ROW), (len(entries), SMALL_ROW)]
    for step in (1, 2, 3, 100):
        gathering, found = Gathering(), []
        for first in range(0, len(entries), step):
            found += gathering.whole(entries[first : first + step])
            assert gathering.is_between == (1 < gathering.taken < len(entries) - 1)
        assert found == whole


def test_an_entry_that_is_left_out_is_a_bug() -> None:
    pieces = list(enumerate(fragments_of("s/0", ROW, 900), 1))
    with pytest.raises(ValueError, match="not one after the other"):
        list(Gathering().whole([pieces[0], pieces[2]]))
    with pytest.raises(ValueError, match="out of line"):
        list(Gathering().whole(pieces[1:]))


# --- a keyed stage


def test_pieces_of_several_producers_may_come_in_between_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = LargeScene(tmp_path, monkeypatch, "")
    texts = {f"{name}/0": name * 1_500 for name in "pqr"}
    pieces = {
        f"{name}/0": fragments_of(f"{name}/0", encode_batch([1], [(text,)]), 600)
        for name, text in texts.items()
    }
    plain = encode_batch([1], [("ash-1",)])
    count = max(len(found) for found in pieces.values())
    task = scene.task("count", scene.count_shards)
    for place in range(count):
        now_us = scene.clock.now_us()
        for producer, found in pieces.items():
            if place < len(found):
                is_last = int(place + 1 == len(found))
                append = Append(producer, "count/0", place + 1, found[place], is_last, now_us)
                assert scene.store.call(append) is Answer.OK
        assert scene.store.call(Append("s/0", "count/0", place + 1, plain, 1, now_us)) is Answer.OK
        scene.run(task, rounds=6)
    words = [json.loads(line)["word"] for line in scene.out()]
    assert sorted(words) == sorted(["ash-1"] * count + list(texts.values()))
    assert scene.left() == []
    counters = scene.store.call(Measure(("count/0",)))[0]
    assert counters is not None
    assert counters.arrived_rows == counters.completed_rows == count + 3


def test_an_owner_between_two_pieces_hands_them_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = LargeScene(tmp_path, monkeypatch, "")
    pieces = fragments_of("s/0", encode_batch([1], [("w" * 2_000,)]), 600)
    for number, piece in enumerate(pieces, 1):
        assert scene.store.call(Append("s/0", "count/0", number, piece, 0, 1)) is Answer.OK
        scene.run(scene.task("count", scene.count_shards, f"r{number}"), rounds=5)
    assert [json.loads(line)["word"] for line in scene.out()] == ["w" * 2_000]
    assert scene.left() == []


# --- the console of `penstock run`


def console() -> tuple[Scene, ConsoleDelivery]:
    schema = parse_schema("word string")
    scene = Scene(MemoryBackend().open_store(bounds=Bounds(entry_bytes_max=700))).set_up("mid/0")
    return scene, ConsoleDelivery([ConsoleTarget("out", "mid", schema)], {"mid": ["mid/0"]})


def deliver(scene: Scene, delivery: ConsoleDelivery, printed: list[str]) -> int:
    """One tick; how many rows it printed."""
    counters = {"mid": [scene.measure("mid/0")]}
    told: Iterator[Any] = delivery.deliver(scene.store, counters, printed.extend, lambda: 10)
    return sum(len(ages) for _, ages in told)


def test_the_console_prints_a_row_when_its_last_piece_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_operator.local.showing.console_delivery.READ_BYTES_MAX", 700)
    scene, delivery = console()
    printed: list[str] = []
    pieces = fragments_of("mid/0", ROW, 700)
    scene.commit("mid/0", out("out", SMALL_ROW, 2, external=True))
    for piece in pieces[:-1]:
        scene.commit("mid/0", out("out", piece, 0, external=True))
        deliver(scene, delivery, printed)
    assert printed == ['{"word":"a"}', '{"word":"b"}']
    assert scene.claim("mid/0").external["out"].acknowledged == 1, "a part of a row is not acknowledged"
    scene.commit("mid/0", out("out", pieces[-1], 1, external=True))
    scene.commit("mid/0", out("out", SMALL_ROW, 2, external=True))
    assert deliver(scene, delivery, printed) == 3
    assert [json.loads(line)["word"] for line in printed] == ["a", "b", "x" * 5_000, "a", "b"]
    assert scene.measure("mid/0").outbox_entries == 0


def test_a_row_that_could_not_be_printed_is_printed_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, delivery = console()
    for number, piece in enumerate(pieces := fragments_of("mid/0", ROW, 700), 1):
        scene.commit("mid/0", out("out", piece, int(number == len(pieces)), external=True))

    def broken(_: list[str]) -> None:
        raise OSError("the terminal is gone")

    counters = {"mid": [scene.measure("mid/0")]}
    with pytest.raises(OSError, match="terminal"):
        list(delivery.deliver(scene.store, counters, broken, lambda: 10))
    printed: list[str] = []
    assert deliver(scene, delivery, printed) == 1
    assert [json.loads(line)["word"] for line in printed] == ["x" * 5_000]
