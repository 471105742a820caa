"""Whether a topology holds more of a node store's memory than `spec.storeMemory` allows it. Pure.

Over its quota in one store, the topology's sources stop everywhere, by schedules that give them no tasks, as
`paused` does: what was read is worked off, commits and trimming go on, other topologies notice nothing. They
go on by themselves below nine tenths of the quota in every store, or when the quota is raised. What a store
does not tell is not zero: who was over stays so, who was not is left alone. Neighbours: the agents weigh
(`agent/weighing.py`), `demand` holds the sources, `status` tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.metrics.rows import HeldRow
from penstock.schedule.record import OperatorSchedule
from penstock.schedule.store_ids import in_words
from penstock_operator.cluster.decisions.status import Finding
from penstock_operator.cluster.observing.observed import Observed

CONDITION = "QuotaExceeded"
BELOW_PERCENT = 90
"""Of the quota: who was over it goes on below this."""
HELD_ROW_AGE_US_MAX = 30_000_000
_MIB = 1 << 20


def quota_finding(
    observed: Observed, schedules: Iterable[OperatorSchedule], quota_bytes: int, former: Mapping[str, Any]
) -> Finding:
    """Holds while the sources have to stop. `former` is the status before."""
    held = _held_bytes(observed)
    over = {store: size for store, size in held.items() if size > quota_bytes}
    before = quota_as_before(former)
    homes = {place.home for schedule in schedules for place in schedule.shards.values()}
    within = f"it may hold {_size(quota_bytes)} in each store (spec.storeMemory)"
    below_bytes = quota_bytes * BELOW_PERCENT // 100
    if not over and before.holds:
        if homes - held.keys():
            return before
        over = {store: size for store, size in held.items() if size > below_bytes}
    if not over:
        return _at_limit(observed) or Finding(False, "WithinQuota", within)
    told = ", ".join(
        f"{_size(size)} in the store of {in_words(store)}" for store, size in sorted(over.items())
    )
    until = f"its sources stop until it holds less than {_size(below_bytes)}"
    return Finding(True, "OverQuota", f"the topology holds {told}; {within}; {until}")


def quota_as_before(former: Mapping[str, Any]) -> Finding:
    """As it was last decided."""
    for condition in former.get("conditions", ()):
        if condition["type"] == CONDITION:
            return Finding(condition["status"] == "True", condition["reason"], condition["message"])
    return Finding(False, "WithinQuota")


def _at_limit(observed: Observed) -> Finding | None:
    """Whether a store is at its own limit, whoever fills it: it holds back the sources there by itself."""
    told = ", ".join(
        f"the store of {in_words(store)} is at its limit of {_size(row.limit_bytes)}, "
        f"of which this topology holds {_size(row.held_bytes)}"
        for store, row in sorted(_rows(observed).items())
        if row.limit_bytes
    )
    if not told:
        return None
    return Finding(
        False,
        "StoreFull",
        f"{told}; sources wait there until what waits is worked off; if state fills it, give the stores more"
        " (store.memory of the chart) or remove keys",
    )


def _held_bytes(observed: Observed) -> dict[str, int]:
    """Store id -> bytes, where it is known."""
    return {store: row.held_bytes for store, row in _rows(observed).items()}


def _rows(observed: Observed) -> dict[str, HeldRow]:
    """Store id -> what its agent told lately."""
    return {
        store: reading.held
        for store, reading in observed.readings.items()
        if reading is not None
        and reading.held is not None
        and reading.now_us - reading.held.at_us <= HELD_ROW_AGE_US_MAX
    }


def _size(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.0f} MiB" if size_bytes >= 10 * _MIB else f"{size_bytes / 1024:.0f} KiB"
