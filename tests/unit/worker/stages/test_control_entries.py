"""What is no rows is told from rows, and from orders, by its first bytes."""

from __future__ import annotations

from penstock.store import letters
from penstock.store.codec import encode_batch
from penstock.store.fragments import fragments_of, is_fragment
from penstock.store.letters import Letter, LetterId, encode_carried, encode_order
from penstock.store.port import Entry
from penstock_worker.stages.control_entries import (
    KeyState,
    Mark,
    before_control,
    decode,
    encode,
    is_control,
)
from penstock_worker.state.key_state import Part

MARK = Mark(3, "src/0")
LETTER = Letter(letters.ROWS, [1], [[1, 2]], [5], "it falters", 0, "", attempts=2, due_us=9)
STATE = KeyState(3, b"\x91\x01", "mid/0", 2, [Part(b"vtotal", ("n int",), [b"\x91\x05"])], [LETTER])
ROWS = encode_batch([1, 2], [(1, 2), (3, 4)])


def test_marks_and_states_are_read_back() -> None:
    assert decode(encode(MARK)) == MARK
    assert decode(encode(STATE)) == STATE


def test_rows_initial_rows_and_fragments_are_no_control_entries() -> None:
    pieces = fragments_of("mid/0", encode(STATE), 64)
    payloads = [ROWS, encode_batch([1], [(1,)], initial=True), *pieces]
    assert not any(map(is_control, payloads))
    assert all(is_control(encode(said)) and not is_fragment(encode(said)) for said in (MARK, STATE))


def test_orders_about_dead_letters_are_no_control_entries() -> None:
    orders = [encode_order(doing, "mid", LetterId(300, 0)) for doing in (letters.REPLAY, letters.DROP)]
    assert not any(map(is_control, [*orders, encode_carried("mid", LETTER)]))


def test_rows_are_taken_up_to_the_first_control_entry() -> None:
    entries = [Entry(number, 0, payload) for number, payload in enumerate([ROWS, ROWS, encode(MARK), ROWS])]
    assert before_control(entries) == entries[:2]
    assert before_control(entries[:2]) is not None
    assert before_control(entries[2:]) == []
