"""What `penstock explain --cluster` reads and prints."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.errors import PermanentError
from penstock_operator.cluster.asked.told_decisions import (
    ToldDecision,
    decisions_json,
    decisions_text,
    told_decisions,
)
from penstock_operator.cluster.kubernetes_api.port import LATENCY_SLAS, TOPOLOGIES
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds.cluster_world import manifest

TABLES = {
    "number": 3,
    "time": "2026-03-01T12:00:10Z",
    "rule": "gain",
    "reason": "64% of the bytes from tags to lands would stay on their node instead of 17%",
    "actions": ["a table of 120 keys for lands", "80 keys move, 1 KiB of state"],
    "brought": "64% was promised, 62% came",
    "dryRun": False,
}
HELD = {"number": 4, "time": "2026-03-01T12:00:20Z", "rule": "resting", "reason": "too young"}
SCALED = {
    "number": 1,
    "time": "2026-03-01T12:00:15Z",
    "operator": "count",
    "treatment": "ScaleOut",
    "rule": "severe",
    "reason": "two tasks are too few",
    "actions": ["an executor more"],
    "predicted": "90 ms without, 12 ms with it",
    "dryRun": False,
}


def sla(name: str, topology: str) -> dict[str, Any]:
    return {
        "apiVersion": LATENCY_SLAS.api_version,
        "kind": LATENCY_SLAS.kind,
        "metadata": {"name": name},
        "spec": {"topology": topology, "operator": "count", "latency": "250ms", "policy": "StreamSwitch"},
    }


async def words(**status: Any) -> MemoryCluster:
    cluster = MemoryCluster(lambda: 0.0, "streams")
    document = manifest()
    del document["metadata"]["uid"]
    await cluster.create(TOPOLOGIES, document)
    cluster.set_status(TOPOLOGIES, "words", status)
    for name, topology in (("quick", "words"), ("other", "tally")):
        await cluster.create(LATENCY_SLAS, sla(name, topology))
        cluster.set_status(LATENCY_SLAS, name, {"decisions": [SCALED]})
    return cluster


def test_decisions_on_tables_and_of_its_slas_are_told_in_the_order_of_their_time() -> None:
    cluster = asyncio.run(words(locality={"decisions": [HELD, TABLES]}))
    told = asyncio.run(told_decisions(cluster, "words"))
    assert [(one.sla, one.entry["number"]) for one in told] == [("", 3), ("quick", 1), ("", 4)]
    assert decisions_text(told).splitlines() == [
        "#3 2026-03-01 12:00:10Z  tables: ChangeTables (locality, rule gain)",
        f"    chosen     {TABLES['reason']}",
        "               a table of 120 keys for lands; 80 keys move, 1 KiB of state",
        "    brought    64% was promised, 62% came",
        "#1 2026-03-01 12:00:15Z  count: ScaleOut (quick, rule severe)",
        "    predicted  90 ms without, 12 ms with it",
        "    chosen     two tasks are too few",
        "               an executor more",
        "    brought    not known: it was not done, or was not measured yet",
        "#4 2026-03-01 12:00:20Z  tables: Hold (locality, rule resting)",
        "    chosen     too young",
        "               nothing is done",
    ]
    first, second, _ = json.loads(decisions_json(told))
    assert first == {"kind": "tables", **TABLES}
    assert second | {"brought": ""} == {"kind": "decision", "sla": "quick", **SCALED, "brought": ""}


def test_a_dry_run_is_told_as_one() -> None:
    text = decisions_text([ToldDecision("", {**TABLES, "brought": "", "dryRun": True})])
    assert "(locality, rule gain), dry run: not carried out" in text
    assert "brought" not in text


def test_a_topology_without_decisions_has_none() -> None:
    assert asyncio.run(told_decisions(asyncio.run(words()), "words"))[0].sla == "quick"
    cluster = MemoryCluster(lambda: 0.0, "streams")
    with pytest.raises(PermanentError, match="there is no Topology tally"):
        asyncio.run(told_decisions(cluster, "tally"))
