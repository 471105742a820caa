"""What the chart tells the operator is read once, and every fault in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.api.operator_config import load_operator_config, parse_operator_config
from penstock.manifest.faults import InvalidManifest

CONFIG = """
fullname: penstock
namespace: streams
images: {operator: "example.org/penstock-operator:1", worker: worker:1, store: "store@sha256:ab"}
imagePullPolicy: IfNotPresent
imagePullSecrets: [{name: pull}]
priorityClassName: system-cluster-critical
metricsPorts: {operator: 8080, agent: 9091, worker: 9090}
store:
  durability: Disk
  storageClassName: standard
  size: 10Gi
  memory: 1Gi
  cpu: 500m
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: streams, operator: Exists, effect: NoSchedule}]
  authSecret: penstock-store-auth
  serviceAccount: penstock-agent
  headlessService: penstock-stores
  localService: penstock-store-local
worker: {terminationGraceSeconds: 30, serviceAccounts: [reader]}
"""


def faults_of(text: str) -> list[str]:
    with pytest.raises(InvalidManifest) as caught:
        parse_operator_config(text)
    return [str(fault) for fault in caught.value.faults]


def test_a_configuration_is_read_with_its_defaults() -> None:
    config = parse_operator_config(CONFIG)
    assert config.images.worker == "worker:1"
    assert config.store.storage_class_name == "standard"
    assert config.store.tolerations[0].effect == "NoSchedule"
    assert config.agent.memory == "256Mi"
    assert config.metrics_ports.worker == 9090
    assert (config.worker.tmp_size, config.worker.service_accounts) == ("2Gi", ("reader",))


def test_a_store_on_disk_has_a_volume_of_the_named_class_or_of_the_default_one() -> None:
    plain = CONFIG.replace("  storageClassName: standard\n", "")
    found = parse_operator_config(plain).store
    assert (found.has_claim, found.storage_class_name) == (True, None)
    assert not parse_operator_config(plain.replace("durability: Disk", "durability: Process")).store.has_claim
    assert parse_operator_config(CONFIG.replace("durability: Disk", "durability: Process")).store.has_claim
    assert faults_of(CONFIG.replace("durability: Disk", "durability: Disk\n  volume: EmptyDir")) == [
        "store: durability Disk needs volume Claim; give that, or durability Process"
    ]


def test_all_faults_are_listed_with_their_paths() -> None:
    bad = CONFIG.replace("durability: Disk", "durability: Dsk").replace("size: 10Gi", "sise: 10Gi")
    assert faults_of(bad) == [
        "store.durability: 'Dsk' is not one of Process, Disk",
        "store.sise: unknown field (did you mean size?)",
    ]
    assert faults_of("- 1")[0].endswith("give one object with fullname, images and store")


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match=r"config\.yaml: cannot be read"):
        load_operator_config(tmp_path / "config.yaml")
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    assert load_operator_config(tmp_path / "config.yaml").namespace == "streams"


def test_further_namespaces_are_served_after_the_releases_own_each_once() -> None:
    assert parse_operator_config(CONFIG).served == ("streams",)
    assert parse_operator_config(f"{CONFIG}namespaces: [team-a, team-b]").served == (
        "streams",
        "team-a",
        "team-b",
    )
    (told,) = faults_of(f"{CONFIG}namespaces: [team-a, streams]")
    assert "streams is the release's own, which is served anyway" in told
    (told,) = faults_of(f"{CONFIG}namespaces: [team-a, team-a]")
    assert "each may be named once" in told
    (told,) = faults_of(f"{CONFIG}namespaces: [Team]")
    assert told.startswith("namespaces")
