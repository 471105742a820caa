"""Partitions that are added while a run reads: they are found, and go to the executor with the fewest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from penstock.dataflow.source import Source
from penstock.errors import RetryError
from penstock_operator.local.added_partitions import AddedPartitions
from penstock_operator.local.run_placement import with_shards
from scenes.run_scene import RunScene, word_count_plan


@dataclass(frozen=True)
class Growing(Source):
    """Its partitions are as many as are named in a list that a test has; "away" is nobody's answer."""

    kind: ClassVar[str] = "growing"
    grows: ClassVar[bool] = True

    there: tuple[list[str], ...]

    def parts(self, base_dir: Path) -> tuple[str, ...]:
        if "away" in self.there[0]:
            raise RetryError("away")
        return tuple(self.there[0])

    def identity_text(self) -> str:
        return "growing"


def test_what_was_added_is_news_until_it_has_a_shard() -> None:
    there = ["t/0"]
    plan = word_count_plan()
    stages = (replace(plan.stages[0], head=Growing((there,))), *plan.stages[1:])
    added = AddedPartitions(replace(plan, stages=stages), Path())
    added.look()
    assert added.beyond({"lines": ["lines/t/0"]}) == {}
    there.append("t/1")
    added.look()
    assert added.beyond({"lines": ["lines/t/0"]}) == {"lines": ("lines/t/1",)}
    there.append("away")
    added.look()
    assert added.beyond({"lines": ["lines/t/0"]}) == {"lines": ("lines/t/1",)}
    assert added.beyond({"lines": ["lines/t/0", "lines/t/1"]}) == {}


def test_sources_whose_parts_are_looked_for_once_are_left_alone() -> None:
    added = AddedPartitions(word_count_plan(), Path())
    added.look()
    assert added.beyond({"lines": []}) == {}


def test_further_shards_go_to_the_executors_that_have_the_fewest_for_their_tasks() -> None:
    schedule = RunScene(workers=2).state.schedules["count"]
    names = [f"count/new{number}" for number in range(4)]
    grown = with_shards(schedule, names, "local")
    assert set(grown.shards) == {*schedule.shards, *names}
    held = [len(grown.shards_of(executor.name)) for executor in grown.executors]
    assert max(held) - min(held) <= 1
    assert {grown.shards[name].home for name in names} == {"local"}
