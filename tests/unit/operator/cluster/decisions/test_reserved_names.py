"""Secrets and volumes that no Topology may name, wherever one may be named."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.load import read_topology
from penstock_operator.cluster.decisions.reserved_names import reserved_name_refusal
from penstock_operator.cluster.kubernetes_api.names import store_name
from penstock_operator.cluster.manifests.node_store import claim_name
from worlds.cluster_world import CONFIG, World, manifest

OURS = "pen-store-auth"
WORKERS = "pen-store-workers"
VAULT = "vault"
HELMS = "sh.helm.release.v1.pen.v1"
FOLLOWING = CONFIG.model_copy(update={"store": CONFIG.store.model_copy(update={"passwords_secret": VAULT})})
KAFKA = {"bootstrapServers": "k:9092", "topics": ["t"], "value": {"format": "string"}}


def refusal(**changes: Any) -> str:
    return reserved_name_refusal(read_topology(manifest(**changes)), FOLLOWING)


def volume(**kind: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "x", **kind}]}


@pytest.mark.parametrize("name", [OURS, WORKERS, VAULT, HELMS])
@pytest.mark.parametrize(
    ("where", "pod"),
    [
        ("spec.pod.env (P).valueFrom.secretKeyRef.name",
         lambda name: {"env": [{"name": "P", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]}),
        ("spec.pod.envFrom[1].secretRef.name",
         lambda name: {"envFrom": [{"secretRef": {"name": "mine"}}, {"secretRef": {"name": name}}]}),
        ("spec.pod.volumes (x).secret.secretName", lambda name: volume(secret={"secretName": name})),
        ("spec.pod.volumes (x).projected.sources[0].secret.name",
         lambda name: volume(projected={"sources": [{"secret": {"name": name}}]})),
        ("spec.pod.imagePullSecrets[0].name", lambda name: {"imagePullSecrets": [{"name": name}]}),
    ],
)  # fmt: skip
def test_a_pod_may_have_neither_the_stores_passwords_nor_helms_records(
    where: str, pod: Any, name: str
) -> None:
    told = refusal(spec__pod=pod(name))
    assert told.startswith(f"{where}: Secret {name} ")
    assert told.endswith("; name a Secret of your own")
    assert refusal(spec__pod=pod("mine")) == ""


def test_a_source_may_have_none_of_them_either() -> None:
    security = {"protocol": "SaslSsl", "mechanism": "Plain", "credentials": {"secret": OURS}}
    source = {"kafka": {**KAFKA, "security": security}}
    told = refusal(spec__operators__0__source=source)
    assert told.startswith(f"spec.operators (lines).source: Secret {OURS} holds the passwords")


@pytest.mark.parametrize("fullname", ["pen", "a-release--whose-name-is-as-long-as-it-ma"])
@pytest.mark.parametrize("node", ["n1", "a-node-with-a-long-name.example.org"])
def test_a_stores_volume_is_nobody_elses(fullname: str, node: str) -> None:
    config = CONFIG.model_copy(update={"fullname": fullname})

    def told(claim: str) -> str:
        pod = volume(persistentVolumeClaim={"claimName": claim})
        return reserved_name_refusal(read_topology(manifest(spec__pod=pod)), config)

    claim = claim_name(store_name(fullname, node))
    where = "spec.pod.volumes (x).persistentVolumeClaim.claimName"
    assert told(claim).startswith(f"{where}: volume claim {claim} is a node store's")
    assert told("data-mine") == ""


def test_a_topology_that_names_one_is_held_and_says_so() -> None:
    world = World(manifest(spec__pod=volume(secret={"secretName": OURS})))
    world.run(5)
    assert world.condition("Ready") == ("False", "NameRefused")
    assert world.condition("Stalled") == ("True", "NameRefused")
    assert world.pods == {}


def test_in_another_namespace_the_workers_secret_is_reserved_and_nothing_else() -> None:
    team = {"metadata__namespace": "team-a"}
    claim = {"persistentVolumeClaim": {"claimName": claim_name(store_name("pen", "n1"))}}
    told = refusal(spec__pod=volume(secret={"secretName": WORKERS}), **team)
    assert f"Secret {WORKERS} holds the passwords" in told
    secrets = [volume(secret={"secretName": name}) for name in (OURS, VAULT, HELMS)]
    for pod in (*secrets, volume(**claim)):
        assert refusal(spec__pod=pod)
        assert refusal(spec__pod=pod, **team) == ""
