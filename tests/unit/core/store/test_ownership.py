import pytest
from msgspec import structs

from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Answer, Claimed, Entry, ExternalCursor, Output


def owned(**changes: object) -> OwnedShard:
    values = {
        "epoch": 3, "generation": 2, "commit": 7, "offset": 40, "position": b"", "table_version": 0,
        "external": {"totals": ExternalCursor(issued=5, acknowledged=4, position=b"100")}, "finished": False,
    }  # fmt: skip
    return OwnedShard("count/1", Claimed(**{**values, **changes}))


def test_a_commit_carries_the_next_number_and_the_offset_of_its_last_entry():
    shard = owned()
    commit = shard.commit(99, entries=(Entry(41, 0, b"abc"), Entry(42, 0, b"de")), rows=9)
    assert (commit.number, commit.offset, commit.consumed_bytes, commit.consumed_rows) == (8, 42, 5, 9)
    assert (commit.epoch, commit.generation) == (3, 2)


def test_building_a_commit_twice_gives_the_same_number_until_it_is_settled():
    shard = owned()
    assert shard.commit(1) == shard.commit(1)
    shard.settle(shard.commit(1), Answer.OK)
    assert shard.commit(1).number == 9


@pytest.mark.parametrize("answer", [Answer.OK, Answer.DONE])
def test_ok_and_done_both_mean_applied_once(answer: Answer):
    shard = owned()
    commit = shard.commit(1, outputs=(Output("totals", b"x", 1, external=True), Output("next/0", b"y", 1)))
    assert shard.settle(commit, answer) == [("totals", 6, b"x")]
    assert shard.number == 8


@pytest.mark.parametrize("answer", [Answer.FENCED, Answer.CONFLICT, Answer.UNKNOWN, None])
def test_every_other_answer_loses_the_shard_and_changes_nothing(answer: object):
    shard = owned()
    with pytest.raises(OwnershipLost, match="count/1"):
        shard.settle(shard.commit(1), answer)
    assert shard.number == 7


def test_commits_that_take_nothing_off_the_inbox_yet_tell_no_pace_of_it():
    shard = owned()
    waiting = Entry(41, 1_000_000, b"abc")
    for turn in range(1, 100):
        commit = shard.commit(2_000_000 + turn * 20_000, entries=(waiting,), paced=True)
        shard.settle(structs.replace(commit, offset=40, consumed_bytes=0), Answer.OK)
    assert shard.commit(9_000_000).inbox_limit_bytes is None


def test_an_earlier_owners_unwritten_entries_are_named():
    assert owned().unwritten() == ["totals"]
    shard = owned()
    acknowledge = shard.written("totals", 5, b"120")
    assert shard.unwritten() == []
    assert (acknowledge.producer, acknowledge.target, acknowledge.number, acknowledge.position) == (
        "count/1", "totals", 5, b"120",
    )  # fmt: skip
    assert shard.sink_position("totals") == b"120"
