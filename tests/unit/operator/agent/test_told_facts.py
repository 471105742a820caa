"""Which facts go to another store, and when."""

from __future__ import annotations

from penstock.store.port import Watermark, WatermarkFact
from penstock_operator.agent.told_facts import ALL_AGAIN_S, Taken, pause_s


def fact(shard: str, version: int) -> WatermarkFact:
    return WatermarkFact(shard, version, Watermark(10 * version))


def test_an_operator_of_few_facts_is_looked_at_every_25_ms_and_one_of_many_more_seldom() -> None:
    assert [pause_s(facts) for facts in (0, 1, 256)] == [0.025] * 3
    assert pause_s(4096) == 0.4


def test_at_first_all_that_is_known_goes() -> None:
    told = [fact("src/0", 3), fact("src/1", 1)]
    assert Taken().news(told, {"src/0"}, 0.0) == tuple(told)


def test_then_only_news_of_shards_that_are_here() -> None:
    taken = Taken()
    taken.took([fact("src/0", 3), fact("src/1", 1)], 0.0)
    assert taken.news([fact("src/0", 3), fact("src/1", 1)], {"src/0", "src/1"}, 1.0) == ()
    told = [fact("src/0", 4), fact("src/1", 2), fact("src/2", 1)]
    assert taken.news(told, {"src/0", "src/2"}, 1.0) == (told[0], told[2])


def test_now_and_then_all_goes_again() -> None:
    taken, told = Taken(), [fact("src/0", 3)]
    taken.took(told, 0.0)
    assert taken.news(told, (), ALL_AGAIN_S - 0.1) == ()
    assert taken.news(told, (), ALL_AGAIN_S) == tuple(told)
    taken.took(told, ALL_AGAIN_S)
    assert taken.news(told, (), 2 * ALL_AGAIN_S - 0.1) == ()


def test_after_a_loss_all_goes_again() -> None:
    taken, told = Taken(), [fact("src/0", 3)]
    taken.took(told, 0.0)
    taken.forget()
    assert taken.news(told, (), 0.1) == tuple(told)
