"""What is worked on at once of a shard's inbox: the same by columns, of all entries together or one by one,
as by rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Processor
from penstock.store import letters
from penstock.store.codec import encode_batch
from penstock.store.even_rows import even_cells, even_entry
from penstock.store.ownership import OwnedShard
from penstock.store.port import Claimed, Entry
from penstock_worker.stages import keyed_part, part_reader, within
from penstock_worker.stages.failing_code import FailingCode
from penstock_worker.stages.keyed_part import Part
from penstock_worker.stages.part_reader import PartReader
from penstock_worker.stages.part_size import PartSize
from penstock_worker.user_code.running import ProcessorRunner
from scenes.task_scene import TurnedClock

SCHEMA = parse_schema("k bigint, n bigint")
HEAD = Processor("m:P", SCHEMA, (0,), 4)


def reader(rows_max: int, *, takes_columns: bool) -> PartReader:
    runner = SimpleNamespace(takes_columns=takes_columns, variables=())
    failing = SimpleNamespace(may_hold=False, waits=lambda _: False)
    return PartReader(
        "count",
        HEAD,
        cast("ProcessorRunner", runner),
        cast("FailingCode", failing),
        PartSize(rows_max),
        TurnedClock(),
    )


def entry(number: int, kind: str, rows: int) -> Entry:
    random = np.random.default_rng(number)
    keys, numbers = random.integers(0, 3, rows), 1000 * number + np.arange(rows)
    if kind == "wide":
        numbers += 1 << 40
    stamps_us = np.sort(random.integers(0, 100, rows)) + 50 * number
    if kind == "apart":
        payload = bytes((letters.FIRST_BYTE,)) + b"..."
    elif kind == "rows":
        payload = encode_batch(stamps_us.tolist(), list(zip(keys.tolist(), numbers.tolist(), strict=True)))
    else:
        payload = even_entry(stamps_us, even_cells([keys, numbers], rows))
    return Entry(number, 7 * number, payload)


def shown(part: Part) -> Any:
    groups = [(key, list(group.rows), group.oldest_us) for key, group in part.groups.items()]
    return groups, list(part.timestamps_us), part.rows_placed_us, list(part.entries), part.within


ENTRIES = st.lists(
    st.tuples(st.sampled_from(["even"] * 6 + ["wide", "rows", "apart"]), st.integers(1, 400)),
    min_size=1,
    max_size=6,
)


@given(ENTRIES, st.sampled_from([1, 2, 50, 300, 900, 1 << 20]), st.integers(0, 399), st.booleans())
@settings(deadline=None)
def test_a_part_is_the_same_however_it_was_read(
    kinds: list[tuple[str, int]], rows_max: int, done: int, is_few: bool
) -> None:
    entries = [entry(number, *kind) for number, kind in enumerate(kinds, 5)]
    noted = within.encode(within.Rows(5, done % kinds[0][1]))
    owned = OwnedShard("count/0", Claimed(3, 1, 0, 4, b"", 0, {}, finished=False, within=noted))
    with pytest.MonkeyPatch.context() as patch:
        for module in (keyed_part, part_reader):
            patch.setattr(module, "GROUPED_FROM", 1 if is_few else 256)
        by_columns = reader(rows_max, takes_columns=True).part(owned, (entries, ()))
    by_rows = reader(rows_max, takes_columns=False).part(owned, (entries, ()))
    assert shown(by_columns) == shown(by_rows)
    assert len(by_columns) == len(by_rows)


def test_entries_that_are_alike_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry(number, "even", 256) for number in range(4)]
    owned = OwnedShard("count/0", Claimed(3, 1, 0, 0, b"", 0, {}, finished=False))
    by_columns = reader(1 << 20, takes_columns=True)
    monkeypatch.setattr(by_columns, "_read", None)
    part = by_columns.part(owned, (entries, ()))
    assert sum(len(group.rows) for group in part.groups.values()) == 1024
