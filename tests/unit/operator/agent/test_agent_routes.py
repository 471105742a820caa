"""Where a node agent sends entries while shards move and stores are new or have forgotten."""

from __future__ import annotations

from penstock.store.port import Answer, Moved
from penstock_operator.agent.routes import Routes

STORES = ("a", "b", "c")


def routes(home: str = "a") -> Routes:
    known = Routes()
    known.learn({"mid/0": home}, STORES)
    return known


def test_a_shard_is_looked_for_at_the_home_of_the_newest_schedule() -> None:
    assert routes().home_of("mid/0") == "a"
    assert routes().home_of("mid/9") is None


def test_a_shard_that_moves_is_at_its_old_home_until_that_says_otherwise() -> None:
    known = routes("a")
    assert known.learn({"mid/0": "b"}, STORES)
    assert known.home_of("mid/0") == "a"
    known.refused("mid/0", "a", Moved("b"))
    assert known.home_of("mid/0") == "b"


def test_a_moved_answer_is_followed_wherever_it_leads() -> None:
    known = routes("a")
    known.refused("mid/0", "a", Moved("c"))
    assert known.home_of("mid/0") == "c"


def test_a_home_that_knows_nothing_of_the_shard_sends_us_round_all_stores_and_back() -> None:
    known = routes("b")
    asked = []
    for _ in range(4):
        store = known.home_of("mid/0")
        assert store is not None
        asked.append(store)
        known.refused("mid/0", store, Answer.UNKNOWN)
    assert asked == ["b", "a", "c", "b"]


def test_a_shard_that_is_busy_or_frozen_is_where_it_is() -> None:
    known = routes("a")
    for answer in (Answer.BUSY, Answer.MOVING, Answer.GAP):
        known.refused("mid/0", "a", answer)
        assert known.home_of("mid/0") == "a"


def test_learning_the_same_again_is_no_news() -> None:
    known = routes("a")
    assert not known.learn({"mid/0": "a"}, STORES)
    assert known.learn({"mid/0": "a"}, (*STORES, "d"))


def test_a_former_home_that_does_not_answer_sends_us_to_the_schedules_own() -> None:
    known = routes("a")
    known.learn({"mid/0": "b"}, STORES)
    known.unreachable("mid/0", "a")
    assert known.home_of("mid/0") == "b"


def test_a_home_that_does_not_answer_sends_us_to_the_one_before_and_back() -> None:
    known = routes("a")
    known.learn({"mid/0": "b"}, STORES)
    asked = []
    for _ in range(4):
        store = known.home_of("mid/0")
        assert store is not None
        asked.append(store)
        known.unreachable("mid/0", store)
    assert asked == ["a", "b", "a", "b"]


def test_a_home_that_never_was_elsewhere_is_asked_again_when_it_does_not_answer() -> None:
    known = routes("b")
    known.unreachable("mid/0", "b")
    assert known.home_of("mid/0") == "b"


def test_a_store_that_a_moved_answer_names_and_that_does_not_answer_leads_back_home() -> None:
    known = routes("a")
    known.refused("mid/0", "a", Moved("gone"))
    assert known.home_of("mid/0") == "gone"
    known.unreachable("mid/0", "gone")
    assert known.home_of("mid/0") == "a"


def test_a_store_that_no_schedule_names_any_more_is_forgotten() -> None:
    known = routes("a")
    known.learn({"mid/0": "b"}, STORES)
    assert known.home_of("mid/0") == "a"
    assert known.learn({"mid/0": "b"}, ("b", "c"))
    assert known.home_of("mid/0") == "b"
    known.refused("mid/0", "b", Answer.UNKNOWN)
    assert known.home_of("mid/0") == "c"
    assert known.is_known("c")
    assert not known.is_known("a")


def test_a_shard_that_no_schedule_names_any_more_is_forgotten() -> None:
    known = routes("a")
    known.moved("mid/0", "b")
    known.learn({}, STORES)
    assert known.home_of("mid/0") is None
