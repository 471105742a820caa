"""How dead letters lie in a shard's state, and how orders about them look."""

from __future__ import annotations

import pytest

from penstock.store import letters
from penstock.store.codec import encode_batch
from penstock.store.fragments import fragments_of, is_fragment
from penstock.store.letters import Letter, LetterId, letter_id


def letter(text: str) -> Letter:
    return Letter(letters.ROWS, ["ash"], [[text, 7]], [5], "ValueError: no", 9, "inbox of count/0")


@pytest.mark.parametrize("size", [1, letters.PART_BYTES, 3 * letters.PART_BYTES + 17])
def test_a_letter_of_any_size_comes_back_and_goes_whole(size: int) -> None:
    wanted, of = letter("x" * size), LetterId(481, 2)
    fields: dict[bytes, bytes] = {}
    for write in letters.written("count", of, letters.packed(wanted)):
        assert write.collection == letters.collection_of("count")
        assert write.field is not None
        assert write.value is not None
        assert len(write.value) <= letters.PART_BYTES + 100
        fields[write.field] = write.value
    assert letters.letters_in(fields) == {of: wanted}
    for write in letters.removed("count", of, fields[letters.head_field(of)]):
        assert write.field is not None
        del fields[write.field]
    assert fields == {}


def test_letters_are_told_the_oldest_first_beside_their_number() -> None:
    fields = {}
    for of in (LetterId(10, 0), LetterId(9, 1), LetterId(9, 0)):
        fields |= {w.field: w.value for w in letters.written("count", of, letters.packed(letter("x")))}
    kept = letters.counted("count", letters.Kept(3, 3, 99))
    fields[kept.field] = kept.value
    assert [str(of) for of in letters.letters_in(fields)] == ["9.0", "9.1", "10.0"]
    assert letters.decode_kept(kept.value) == letters.Kept(3, 3, 99)
    assert letters.decode_kept(None) == letters.Kept()


def test_an_id_is_read_as_it_is_shown() -> None:
    assert letter_id("481.0") == LetterId(481, 0)
    for text in ("481", "a.b", ""):
        with pytest.raises(ValueError, match="invalid literal"):
            letter_id(text)


def test_an_order_is_no_rows_and_rows_are_no_order() -> None:
    order = letters.encode_order(letters.REPLAY, "count", LetterId(481, 0))
    assert letters.is_order(order)
    assert not is_fragment(order)
    said, of = letters.decode_order(order)
    assert (said, of.operator, of.letter) == (letters.REPLAY, "count", (481, 0))
    batch = encode_batch([1], [("x",)])
    payloads = [batch, encode_batch([1], [("x",)], initial=True), *fragments_of("s/0", batch * 99, 64)]
    assert not any(map(letters.is_order, payloads))


def test_the_collection_of_an_operator_is_told_from_all_others() -> None:
    assert letters.operator_of(letters.collection_of("count")) == "count"
    assert letters.operator_of(b"lmine") is None
