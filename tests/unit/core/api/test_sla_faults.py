"""What does not fit between LatencySLAs and the Topologies that they speak of: listed at once, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.api.latency_sla import LatencySLA
from penstock.api.load import parse_manifest
from penstock.api.sla_faults import sla_faults
from penstock.api.topology import Topology
from penstock.manifest.faults import InvalidManifest
from penstock_operator.checking.checked_manifest import check_for_cluster

TOPOLOGY = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: trades}
spec:
  code: {module: trades}
  workers: {min: 1, max: 2}
  operators:
  - name: orders
    source: {zipf: {keys: 10, ratePerSecond: 100}}
  - name: match
    inputs: [orders]
    keyBy: [key]
    processor: trades:Match
    outputSchema: "key bigint, price bigint"
    shards: 16
    tasks: {min: 2, max: 8}
  - name: sums
    inputs: [match]
    keyBy: [key]
    processor: trades:Sums
    outputSchema: "key bigint, total bigint"
    shards: 4
    tasks: {max: 8}
  - name: shown
    inputs: [sums]
    sink: {console: {}}
"""


def sla(spec: str, name: str = "fast") -> str:
    return f"""
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {{name: {name}}}
spec: {{{spec}}}
"""


def topology() -> Topology:
    return parse_manifest(TOPOLOGY).topology


def slas(*texts: str) -> tuple[LatencySLA, ...]:
    return tuple(found for text in texts for found in parse_manifest(text).latency_slas)


def faults(*texts: str) -> list[str]:
    return [str(fault) for fault in sla_faults([topology()], slas(*texts), is_whole=True)]


def test_an_sla_that_fits_has_no_fault() -> None:
    bounds = "bounds: {tasks: {min: 2, max: 6}, workers: {max: 2}}, budget: {cores: 2}"
    assert faults(sla(f"topology: trades, operator: match, latency: 250ms, {bounds}")) == []
    assert faults(sla("topology: trades, latency: 1s")) == []


def test_a_topology_that_is_not_there_is_named_with_the_nearest_one() -> None:
    assert faults(sla("topology: trade, latency: 1s")) == [
        "LatencySLA fast: spec.topology: there is no Topology 'trade' (did you mean trades?); there is trades"
    ]


def test_an_sla_by_itself_may_be_for_a_topology_in_the_cluster() -> None:
    assert sla_faults([], slas(sla("topology: anywhere, latency: 1s"))) == []


@pytest.mark.parametrize("operator", ["orders", "shown"])
def test_an_operator_without_an_inbox_has_no_latency(operator: str) -> None:
    assert faults(sla(f"topology: trades, operator: {operator}, latency: 1s")) == [
        f"LatencySLA fast: spec.operator: operator {operator} is not keyed: it has no inbox of its own to "
        "wait in; give one of match, sums, or leave it out for the latency from end to end"
    ]


def test_a_topology_without_a_keyed_operator_cannot_be_scaled() -> None:
    text = TOPOLOGY[: TOPOLOGY.index("  - name: match")].replace("  code: {module: trades}\n", "")
    plain = parse_manifest(text + "  - name: shown\n    inputs: [orders]\n    sink: {console: {}}\n").topology
    found = sla_faults([plain], slas(sla("topology: trades, latency: 1s")))
    assert [fault.path for fault in found] == ["LatencySLA fast: spec.topology"]


def test_a_lag_is_asked_of_sources_that_tell_one() -> None:
    (fault,) = faults(sla("topology: trades, latency: 1s, sourceLag: 10s"))
    assert fault.startswith("LatencySLA fast: spec.sourceLag: Topology trades has no source that tells")
    kafka = "kafka: {bootstrapServers: 'k:9092', topics: [t], value: {format: json, schema: 'key bigint'}}"
    text = TOPOLOGY.replace("zipf: {keys: 10, ratePerSecond: 100}", kafka)
    asked = slas(sla("topology: trades, latency: 1s, sourceLag: 10s"))
    assert sla_faults([parse_manifest(text).topology], asked) == []


def test_two_slas_on_one_operator_would_pull_against_each_other() -> None:
    one = sla("topology: trades, operator: match, latency: 250ms", "one")
    two = sla("topology: trades, operator: match, latency: 500ms", "two")
    assert faults(one, two) == [
        "LatencySLA two: spec.operator: operator match has LatencySLA one already; two of them would pull "
        "against each other: keep one"
    ]


def test_an_end_to_end_sla_covers_every_keyed_operator() -> None:
    whole = sla("topology: trades, latency: 1s", "whole")
    part = sla("topology: trades, operator: sums, latency: 500ms", "part")
    assert [str(fault).split(":")[0] for fault in sla_faults([topology()], slas(whole, part))] == [
        "LatencySLA part"
    ]
    assert faults(sla("topology: trades, operator: match, latency: 1s"), part) == []


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (
            "tasks: {min: 9}",
            "spec.bounds.tasks.min: 9 cannot be met: Topology trades allows operator match 2 to 8",
        ),
        (
            "tasks: {max: 1}",
            "spec.bounds.tasks.max: 1 cannot be met: Topology trades allows operator match 2 to 8",
        ),
        (
            "workers: {min: 3}",
            "spec.bounds.workers.min: 3 cannot be met: Topology trades allows 1 to 2 workers",
        ),
    ],
)
def test_bounds_that_cannot_be_met_say_what_is_allowed(bounds: str, message: str) -> None:
    (found,) = faults(sla(f"topology: trades, operator: match, latency: 1s, bounds: {{{bounds}}}"))
    assert message in found


def test_no_more_tasks_than_shards_can_be_asked_for() -> None:
    (found,) = faults(sla("topology: trades, operator: sums, latency: 1s, bounds: {tasks: {min: 5}}"))
    assert "spec.bounds.tasks.min: 5 cannot be met" in found
    assert "over 4 shards" in found


def test_a_budget_below_the_fewest_tasks_cannot_be_kept() -> None:
    (found,) = faults(sla("topology: trades, latency: 1s, budget: {cores: 2}"))
    assert found == (
        "LatencySLA fast: spec.budget.cores: 2 cannot be met: the fewest tasks in scope ask for 3 cores"
    )


def test_every_fault_is_listed_at_once() -> None:
    found = faults(
        sla("topology: trade, latency: 1s", "a"),
        sla("topology: trades, operator: mach, latency: 1s", "b"),
        sla(
            "topology: trades, operator: sums, latency: 1s, bounds: {tasks: {min: 5}}, budget: {cores: 1}",
            "c",
        ),
    )
    assert [fault.split(":")[0] for fault in found] == [
        "LatencySLA a",
        "LatencySLA b",
        "LatencySLA c",
        "LatencySLA c",
    ]


def test_a_file_of_its_own_is_checked_with_the_manifest_and_named(tmp_path: Path) -> None:
    manifest, file = tmp_path / "topology.yaml", tmp_path / "sla.yaml"
    manifest.write_text(TOPOLOGY.replace("shards: 16", "shards: 0"))
    file.write_text(
        sla("topology: trades, latency: 0ms") + "---" + sla("topology: trades, latency: 1s, window: 1ms")
    )
    with pytest.raises(InvalidManifest) as caught:
        check_for_cluster(manifest, (), file)
    assert [fault.path for fault in caught.value.faults] == [
        "spec.operators[1] (match).shards",
        f"{file}: document 1: spec.latency",
        f"{file}: document 2: spec",
    ]


def test_a_file_without_an_sla_is_told(tmp_path: Path) -> None:
    manifest = tmp_path / "topology.yaml"
    manifest.write_text(TOPOLOGY)
    with pytest.raises(InvalidManifest, match="holds no LatencySLA"):
        check_for_cluster(manifest, (), manifest)


def test_what_one_sla_says_wrong_by_itself_is_listed_at_once() -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse_manifest(sla("topology: trades, latency: 0ms, window: 50ms, safetyMargin: 1"))
    assert [str(fault) for fault in caught.value.faults] == [
        "spec.latency: must be longer than 0",
        "spec.safetyMargin: 1 is not a number from 0 below 1",
        "spec: window 50ms is shorter than interval 100ms",
    ]
