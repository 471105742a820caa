"""What an agent tells Prometheus of its store's memory and volume: what is not known is left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.store.port import StoreMemory
from penstock_operator.agent.endpoint import AgentCollector
from penstock_operator.agent.moving import MoveCount
from penstock_operator.agent.node_agent import AgentView
from penstock_operator.agent.store_keeper import OpenedStore
from penstock_operator.agent.store_volume import Volume, volume_of


def served(memory: StoreMemory, volume: Volume | None) -> Mapping[str, float]:
    view = AgentView(
        "a", OpenedStore("run", 1), "", memory, volume, None, None, {}, {}, 0, MoveCount(), {}, {}, {}, ""
    )
    families = AgentCollector(lambda: view).collect()
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_memory_and_volume_are_told_beside_their_limits() -> None:
    told = served(StoreMemory(700, 1000), Volume(5000, 400))
    assert told["penstock_agent_store_memory_bytes"] == 700
    assert told["penstock_agent_store_memory_limit_bytes"] == 1000
    assert told["penstock_agent_store_volume_bytes"] == 5000
    assert told["penstock_agent_store_volume_free_bytes"] == 400


def test_a_store_without_a_limit_or_a_known_volume_tells_of_none() -> None:
    told = served(StoreMemory(700, 0), None)
    assert told["penstock_agent_store_memory_bytes"] == 700
    assert not [name for name in told if "limit" in name or "volume" in name]


def test_a_volume_is_what_its_file_system_says(tmp_path: Path) -> None:
    found = volume_of(str(tmp_path))
    assert found is not None
    assert 0 <= found.free_bytes <= found.size_bytes
    assert volume_of(str(tmp_path / "gone")) is None
    assert volume_of(None) is None
