"""A schedule of more shards than one command of an adapter carries counts whole, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.store.port import (
    Answer,
    Assignment,
    Claim,
    Claimed,
    Create,
    Measure,
    Owner,
    Publish,
)
from scenes.store_scenario import Scene, incarnation

SHARDS = tuple(f"mid/{number}" for number in range(1_100))


def schedule(version: int, worker: str, *, home: str = "s1", term: int = 1) -> Publish:
    """All shards on one worker; both workers have an executor."""
    return Publish(
        "mid",
        version,
        term,
        (("w1", "n", "h", "uid-w1"), ("w2", "n", "h", "uid-w2")),
        (("mid@w1", "w1", 1), ("mid@w2", "w2", 1)),
        tuple((shard, f"mid@{worker}", home) for shard in SHARDS),
    )


@pytest.fixture
def many(scene: Scene) -> Scene:
    scene.set_up()
    scene.store.pipeline([Create(shard) for shard in SHARDS])
    assert scene.store.call(schedule(2, "w1")) is Answer.OK
    return scene


def given(scene: Scene, worker: str) -> dict[str, int]:
    """Executor -> how many shards of it are the worker's."""
    executors = scene.store.call(Assignment(worker)).executors
    return {one.executor: len(one.shards) for one in executors if one.operator == "mid"}


def claims(scene: Scene, worker: str, version: int) -> int:
    """How many shards a worker is granted."""
    owner = Owner(f"mid@{worker}", incarnation(worker), f"mid@{worker}")
    answers = scene.store.pipeline([Claim(shard, owner, version) for shard in SHARDS])
    return sum(isinstance(answer, Claimed) for answer in answers)


def test_a_large_schedule_gives_every_shard_to_its_executor(many: Scene) -> None:
    assert given(many, "w1") == {"mid@w1": len(SHARDS)}
    assert given(many, "w2") == {"mid@w2": 0}
    assert claims(many, "w1", 2) == len(SHARDS)
    assert claims(many, "w2", 2) == 0
    assert many.store.call(schedule(3, "w2")) is Answer.OK
    assert given(many, "w1") == {"mid@w1": 0}
    assert claims(many, "w1", 3) == 0
    assert claims(many, "w2", 3) == len(SHARDS)


def test_a_large_schedule_that_is_not_newer_changes_nothing(many: Scene) -> None:
    assert many.store.call(schedule(2, "w2")) is Answer.DONE
    assert many.store.call(schedule(1, "w2")) is Answer.STALE
    assert many.store.call(schedule(3, "w2", term=0)) is Answer.STALE
    assert given(many, "w1") == {"mid@w1": len(SHARDS)}


def test_shards_that_a_large_schedule_sends_elsewhere_are_kept_by_their_owners(many: Scene) -> None:
    assert claims(many, "w1", 2) == len(SHARDS)
    away = schedule(3, "w2", home="s2")
    without = replace(away, workers=away.workers[1:], executors=away.executors[1:])
    assert many.store.call(without) is Answer.OK
    assert given(many, "w1") == {"mid@w1": len(SHARDS)}
    assert given(many, "w2") == {"mid@w2": 0}
    assert claims(many, "w1", 3) == len(SHARDS)
    assert many.store.call(schedule(4, "w2")) is Answer.OK
    assert given(many, "w1") == {"mid@w1": 0}
    assert given(many, "w2") == {"mid@w2": len(SHARDS)}


def test_a_large_measurement_answers_for_each_shard_in_order(many: Scene) -> None:
    many.claim(SHARDS[700], version=2)
    names = (*SHARDS, "mid/nowhere")
    counters = many.store.call(Measure(names))
    assert len(counters) == len(names)
    assert counters[-1] is None
    assert [
        name for name, one in zip(names, counters, strict=True) if one is not None and one.epoch == 1
    ] == [SHARDS[700]]
    assert many.store.pipeline([Measure(()), Measure(names), Measure(SHARDS[:1])])[1:] == [
        counters,
        counters[:1],
    ]
