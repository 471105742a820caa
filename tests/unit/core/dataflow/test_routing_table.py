"""Tables say which keys change their shard, and are carried out when nobody goes by an earlier one."""

from __future__ import annotations

import pytest

from penstock.dataflow.routing_table import (
    KeyMove,
    bare_table,
    content_of,
    content_text,
    decode_table,
    digest_of,
    encode_table,
    is_carried_out,
    moved_count,
    next_table,
    routed_count,
    superseded,
)

HASHED = {b"a": 0, b"b": 1, b"c": 2, b"d": 0}


def test_a_first_table_moves_the_keys_that_their_hash_has_elsewhere() -> None:
    table = next_table(None, {b"a": 2, b"b": 1}, HASHED.__getitem__, ["src/1", "src/0"])
    assert table.version == 1
    assert table.moves == (KeyMove(b"a", 0, 2),)
    assert table.producers == ("src/0", "src/1")
    assert table.changed_shards() == [0, 2]


def test_a_key_that_leaves_the_table_goes_back_to_its_hash() -> None:
    first = next_table(None, {b"a": 2, b"c": 0}, HASHED.__getitem__, ["src/0"])
    second = next_table(first, {b"a": 1}, HASHED.__getitem__, ["src/0"])
    assert second.version == 2
    assert second.moves == (KeyMove(b"a", 2, 1), KeyMove(b"c", 0, 2))


def test_equal_tables_have_one_content_and_digest() -> None:
    table = next_table(None, {b"c": 0, b"a": 2}, HASHED.__getitem__, ["src/0"])
    same = next_table(None, {b"a": 2, b"c": 0}, HASHED.__getitem__, ["src/0"])
    assert encode_table(table) == encode_table(same)
    assert digest_of(encode_table(table)) == digest_of(encode_table(same))
    assert decode_table(encode_table(table)) == table


def test_a_table_is_carried_out_when_all_producers_and_all_changed_shards_say_so() -> None:
    table = next_table(None, {b"a": 2}, HASHED.__getitem__, ["src/0", "src/1"])
    routed, moved = routed_count("mid"), moved_count("mid")
    counts = {
        "src/0": {routed: 1},
        "src/1": {routed: 1},
        "mid/0": {moved: 1},
        "mid/2": {moved: 1},
    }
    assert is_carried_out("mid", table, counts)
    for shard in counts:
        others = {name: of for name, of in counts.items() if name != shard}
        assert not is_carried_out("mid", table, others), shard
        assert not is_carried_out("mid", table, {**counts, shard: {routed: 0, moved: 0}}), shard


@pytest.mark.parametrize("content", [b"", b"x", b"abc" * 100_000])
def test_a_content_comes_back_from_its_text_as_it_was(content: bytes) -> None:
    assert content_of(content_text(content)) == content


@pytest.mark.parametrize("text", ["", "no base 64", "aGFsbG8=", content_text(b"abc" * 1000)[:-8]])
def test_a_text_that_is_no_content_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="content of a routing table"):
        content_of(text)


def test_behind_an_empty_table_a_bare_one_keeps_the_version_alone() -> None:
    first = next_table(None, {b"a": 2}, HASHED.__getitem__, ["src/0"])
    empty = next_table(first, {}, HASHED.__getitem__, ["src/0"])
    bare = bare_table(empty)
    assert (first.is_bare, empty.is_bare, bare.is_bare) == (False, False, True)
    assert bare.version == 3
    assert is_carried_out("mid", bare, {}), "nobody has to switch to it"
    again = next_table(bare, {b"a": 2}, HASHED.__getitem__, ["src/0"])
    assert (again.version, again.moves) == (4, first.moves)


def test_a_store_keeps_the_last_two_versions_and_behind_a_bare_one_none() -> None:
    first = next_table(None, {b"a": 2}, HASHED.__getitem__, ["src/0"])
    there = (2, 5, 6, 7, 8)
    assert superseded(7, encode_table(first), there, 2) == [2, 5]
    assert superseded(7, b"of a later Penstock", there, 2) == [2, 5]
    assert superseded(7, encode_table(bare_table(first)), there, 2) == [2, 5, 6]
