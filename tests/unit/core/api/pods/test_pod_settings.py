"""Users say about pods what Kubernetes lets them say, but for what the operator sets itself."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from penstock.api.crds import crd
from penstock.api.load import parse_manifest
from penstock.api.pods.pod_settings import KEY_TAKEN, PATH_TAKEN, VOLUME_TAKEN
from penstock.api.topology import TopologySpec
from penstock.manifest.faults import InvalidManifest

FULL = """
env:
- {name: MODE, value: fast}
- {name: EMPTY, value: ""}
- {name: TOKEN, valueFrom: {secretKeyRef: {name: tokens, key: api, optional: true}}}
- {name: REGION, valueFrom: {configMapKeyRef: {name: places, key: region}}}
- {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: TEAM, valueFrom: {fieldRef: {fieldPath: "metadata.labels['example.org/team']"}}}
envFrom:
- {secretRef: {name: more}, prefix: MORE_}
- {configMapRef: {name: settings, optional: true}}
volumes:
- {name: texts, persistentVolumeClaim: {claimName: texts, readOnly: true}}
- {name: certs, secret: {secretName: tls, items: [{key: ca.crt, path: ca/ca.crt}], defaultMode: 288}}
- {name: rules, configMap: {name: rules}}
- {name: scratch, emptyDir: {sizeLimit: 1Gi}}
- {name: both, projected: {sources: [{secret: {name: a}}, {configMap: {name: b}}]}}
volumeMounts:
- {name: texts, mountPath: /data/texts, readOnly: true}
- {name: certs, mountPath: /etc/certs}
- {name: scratch, mountPath: /tmp/scratch, subPath: mine}
tolerations:
- {key: streams, operator: Exists, effect: NoSchedule}
- {key: gone, value: soon, effect: NoExecute, tolerationSeconds: 60}
nodeSelector: {kubernetes.io/arch: amd64}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions: [{key: disk, operator: In, values: [ssd]}]
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - labelSelector: {matchLabels: {app: noisy}}
      topologyKey: kubernetes.io/hostname
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 10
      podAffinityTerm: {topologyKey: zone, labelSelector: {matchExpressions: [{key: a, operator: Exists}]}}
imagePullSecrets: [{name: registry}]
labels: {team: words}
annotations: {example.org/note: "any text, also long"}
"""


def manifest(pod: object) -> str:
    spec = {
        "operators": [
            {"name": "lines", "source": {"files": {"glob": "*.txt"}}},
            {"name": "out", "inputs": ["lines"], "sink": {"console": {}}},
        ],
        "pod": pod,
    }
    head = {"apiVersion": "penstock.dev/v1alpha1", "kind": "Topology", "metadata": {"name": "t"}}
    return yaml.safe_dump(head | {"spec": spec})


def spec_of(pod: object) -> TopologySpec:
    return parse_manifest(manifest(pod)).topology.spec


def the_fault(pod: object) -> str:
    with pytest.raises(InvalidManifest) as caught:
        parse_manifest(manifest(pod))
    (fault,) = caught.value.faults
    return str(fault)


def test_everything_that_a_pod_may_say_is_taken_and_written_out_as_a_pod_has_it() -> None:
    document = yaml.safe_load(FULL)
    pod = spec_of(document).pod
    assert pod.model_dump(by_alias=True, exclude_unset=True, mode="json") == document


def test_without_settings_there_are_none() -> None:
    assert spec_of({}).pod.env == ()
    assert spec_of({}).pod.affinity is None


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        (
            {"env": [{"name": "PENSTOCK_WORKER", "value": "w9"}]},
            "spec.pod.env[0] (PENSTOCK_WORKER).name: environment variables called PENSTOCK_ are the "
            "operator's own; choose another name",
        ),
        (
            {"volumes": [{"name": "penstock-x", "emptyDir": {}}]},
            f"spec.pod.volumes[0] (penstock-x).name: {VOLUME_TAKEN}",
        ),
        ({"labels": {"penstock.dev/x": "y"}}, f"spec.pod.labels: 'penstock.dev/x': {KEY_TAKEN}"),
        (
            {"annotations": {"app.kubernetes.io/name": "y"}},
            f"spec.pod.annotations: 'app.kubernetes.io/name': {KEY_TAKEN}",
        ),
        (
            {"hostNetwork": True},
            "spec.pod.hostNetwork: unknown field; known here: env, envFrom, volumes, volumeMounts, "
            "tolerations, nodeSelector, affinity, imagePullSecrets, serviceAccountName, tmpSize, labels, "
            "annotations",
        ),
        (
            {"tmpSize": "10GB"},
            "spec.pod.tmpSize: '10GB' is not an amount of storage such as 500Mi or 10Gi",
        ),
    ],
)
def test_what_the_operator_owns_cannot_be_overridden(pod: dict[str, Any], says: str) -> None:
    assert the_fault(pod) == says


@pytest.mark.parametrize(
    "path",
    [
        "/tmp",
        "/etc",
        "/etc/penstock",
        "/etc/penstock/store",
        "/var",
        "/run",
        "/run/penstock",
        "/var/run/penstock/x",
    ],
)
def test_nothing_is_mounted_over_the_operators_folders(path: str) -> None:
    pod = {"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": path}]}
    assert the_fault(pod) == f"spec.pod.volumeMounts[0] (v).mountPath: {PATH_TAKEN}"


@pytest.mark.parametrize("path", ["/", "data", "/data/", "/etc//penstock", "/x/../etc/penstock", "/./tmp"])
def test_a_mount_path_is_absolute_and_plain(path: str) -> None:
    pod = {"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": path}]}
    assert "an absolute path such as /data" in the_fault(pod)


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        ({"env": [{"name": "A"}]}, "spec.pod.env[0] (A): give exactly one of value and valueFrom"),
        (
            {"env": [{"name": "A", "valueFrom": {}}]},
            "spec.pod.env[0] (A).valueFrom: has none of secretKeyRef, configMapKeyRef, fieldRef; "
            "give exactly one",
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {}, "secret": {"secretName": "s"}}]},
            "spec.pod.volumes[0] (v): has 2 of configMap, secret, persistentVolumeClaim, emptyDir, "
            "projected; give exactly one",
        ),
        (
            {"envFrom": [{"prefix": "X_"}]},
            "spec.pod.envFrom[0]: give exactly one of secretRef and configMapRef",
        ),
        (
            {
                "volumes": [{"name": "texts", "emptyDir": {}}],
                "volumeMounts": [{"name": "text", "mountPath": "/d"}],
            },
            "spec.pod.volumeMounts[0] (text).name: no volume is called 'text' (did you mean texts?); "
            "there are texts",
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            "spec.pod.env[1] (A).name: 'A' is at spec.pod.env[0] (A) already; keep one",
        ),
        (
            {"labels": {"not a key": "y"}},
            "spec.pod.labels: 'not a key' cannot be a key here; a key is of letters, digits, '-', '_' and "
            "'.', and may have a prefix such as example.org/",
        ),
        ({"labels": {"a": "not a value"}}, "spec.pod.labels.a: 'not a value' is not a label's value"),
        (
            {"volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "spec.pod.volumes[0] (t).projected.sources[0].serviceAccountToken: unknown field; known here: "
            "secret, configMap",
        ),
    ],
)
def test_each_fault_says_where_it_is_and_what_would_be_right(pod: dict[str, Any], says: str) -> None:
    assert the_fault(pod) == says


def test_the_api_server_refuses_the_same_with_the_same_words() -> None:
    (version,) = crd("Topology")["spec"]["versions"]
    text = yaml.safe_dump(version["schema"], width=10_000)
    for sentence in (KEY_TAKEN, PATH_TAKEN, VOLUME_TAKEN, "each volumeMount names one of volumes"):
        assert sentence in text.replace("''", "'"), sentence
