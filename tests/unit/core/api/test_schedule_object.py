"""The Schedule object holds shards compactly, numbers and file names alike."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.api.schedule import Assignment, Schedule, pack_parts

PARTS = st.one_of(
    st.integers(0, 5000).map(str), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
)


def assignment(*ranges: str, names: tuple[str, ...] = ()) -> Assignment:
    return Assignment(executor="count-0", home="node-a", ranges=ranges, names=names)


@given(st.sets(PARTS, max_size=200))
def test_parts_packed_and_unpacked_are_the_same(parts: set[str]) -> None:
    ranges, names = pack_parts(parts)
    unpacked = list(assignment(*ranges, names=names).parts())
    assert len(unpacked) == len(parts)
    assert set(unpacked) == parts


def test_neighbours_make_a_range() -> None:
    assert pack_parts(map(str, [3, 1, 2, 9, 7, 8, 5])) == (("1-3", "5", "7-9"), ())
    assert pack_parts(str(n) for n in range(4096)) == (("0-4095",), ())


def test_names_that_only_look_like_numbers_stay_names() -> None:
    assert pack_parts(["007", "7", "1234567890", "-1", "٣", "docs/a b.txt"]) == (
        ("7",),
        ("-1", "007", "1234567890", "docs/a b.txt", "٣"),
    )


@pytest.mark.parametrize("bad", ["3-1", "3-3", "01", "1-", "a", "0-99999999"])
def test_a_range_ascends_and_has_an_end(bad: str) -> None:
    with pytest.raises(ValidationError):
        assignment(bad)


def test_a_schedule_of_4096_shards_on_100_executors_stays_far_below_etcds_limit() -> None:
    groups = [pack_parts(str(part) for part in range(at, 4096, 100)) for at in range(100)]
    schedule = Schedule.model_validate(
        {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "Schedule",
            "metadata": {"name": "word-count.count"},
            "spec": {
                "topology": "word-count",
                "topologyUid": "u",
                "operator": "count",
                "version": 1,
                "term": 1,
                "shards": [
                    {"executor": f"count-{at}", "home": "node-a", "ranges": list(ranges)}
                    for at, (ranges, _) in enumerate(groups)
                ],
            },
        }
    )
    assert sum(len(list(entry.parts())) for entry in schedule.spec.shards) == 4096
    assert len(json.dumps(schedule.model_dump(by_alias=True, mode="json"))) < 100_000
