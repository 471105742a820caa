"""What a run says of its store's memory: once when it is full, once when it has room again."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.store.port import ShardCounters, StoreMemory
from penstock_operator.local.store.memory_watch import MemoryWatch

LIMIT_BYTES = 100 << 20
WAITING = ShardCounters(1, 1, 1, 0, 0, 3, 20 << 20, 4, 5 << 20, "q@w", finished=False)


def said(*used_mib: int, limit_bytes: int = LIMIT_BYTES) -> list[str]:
    watch = MemoryWatch()
    return [watch.look(StoreMemory(used << 20, limit_bytes), [WAITING, None]) for used in used_mib]


def test_a_store_with_room_is_not_spoken_of() -> None:
    assert said(10, 90, 97) == [""] * 3


def test_a_full_store_is_told_once_with_what_fills_it_and_what_gives_more() -> None:
    first, *later = said(99, 100, 101, 95)
    assert "memory limit of 100 MiB" in first
    assert "25 MiB of entries" in first
    assert "take 74 MiB" in first
    assert "--store-memory" in first
    assert later == [""] * 3


def test_a_store_that_has_room_again_is_told_once() -> None:
    assert [bool(one) for one in said(99, 91, 89, 80, 99)] == [True, False, True, False, True]


def test_a_store_without_a_limit_is_never_full() -> None:
    assert said(10_000, limit_bytes=0) == [""]


def test_more_that_waits_than_is_used_makes_no_negative_figure() -> None:
    watch = MemoryWatch()
    crowded = replace(WAITING, inbox_bytes=LIMIT_BYTES * 2)
    assert "take 0.0 MiB" in watch.look(StoreMemory(LIMIT_BYTES, LIMIT_BYTES), [crowded])
