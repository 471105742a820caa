"""Secrets and volumes that no Topology may name: who writes Topologies must not read them.

What a pod mounts is asked for by the operator, whose rights are others than the author's. So the passwords of
the stores, from wherever they come, what Helm keeps of a release (an earlier chart had the passwords in it)
and the stores' own volumes, with everybody's state, are refused by name. These are in the release's
namespace; what workers log in by is in each that is served. Pure. Neighbour: `decide` asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.api.operator_config import OperatorConfig
from penstock.api.pods.pod_settings import PodSettings, VolumeSpec
from penstock.api.topology import Topology
from penstock_operator.cluster.kubernetes_api.names import workers_secret_name
from penstock_operator.cluster.manifests.node_store import claim_beginnings

_OF_HELM = "sh.helm.release.v1."


def reserved_name_refusal(topology: Topology, config: OperatorConfig) -> str:
    """Where the first such name stands and what would be right, in a sentence; "" when there is none."""
    is_beside_stores = (topology.metadata.namespace or config.namespace) == config.namespace
    secrets: set[str | None] = {workers_secret_name(config.fullname)}
    if is_beside_stores:
        secrets |= {config.store.auth_secret, config.store.passwords_secret}
    for where, name in _secrets_named(topology):
        if name in secrets:
            return (
                f"{where}: Secret {name} holds the passwords of the node stores, which Topologies may not "
                "have; name a Secret of your own"
            )
        if is_beside_stores and name.startswith(_OF_HELM):
            return (
                f"{where}: Secret {name} is Helm's record of a release, which Topologies may not have; "
                "name a Secret of your own"
            )
    claims = claim_beginnings(config.fullname) if is_beside_stores else ()
    for where, name in _claims_named(topology.spec.pod):
        if name.startswith(claims):
            return (
                f"{where}: volume claim {name} is a node store's, with the state of all topologies; "
                "name a claim of your own"
            )
    return ""


def _secrets_named(topology: Topology) -> Iterator[tuple[str, str]]:
    """Where in the Topology, and which Secret."""
    pod = topology.spec.pod
    for variable in pod.env:
        if variable.value_from is not None and variable.value_from.secret_key_ref is not None:
            where = f"spec.pod.env ({variable.name}).valueFrom.secretKeyRef.name"
            yield where, variable.value_from.secret_key_ref.name
    for number, source in enumerate(pod.env_from):
        if source.secret_ref is not None:
            yield f"spec.pod.envFrom[{number}].secretRef.name", source.secret_ref.name
    for volume in pod.volumes:
        yield from _secrets_of(volume)
    for number, secret in enumerate(pod.image_pull_secrets):
        yield f"spec.pod.imagePullSecrets[{number}].name", secret.name
    for operator in topology.spec.operators:
        kinds = {"source": operator.source, "sink": operator.sink, "lateTo": operator.late_to}
        for part, kind in kinds.items():
            if kind is not None:
                for name in kind.given.secret_names:
                    yield f"spec.operators ({operator.name}).{part}", name
    letters = topology.spec.dead_letters
    for name in letters.given.secret_names if letters is not None else ():
        yield "spec.deadLetters", name


def _secrets_of(volume: VolumeSpec) -> Iterator[tuple[str, str]]:
    where = f"spec.pod.volumes ({volume.name})"
    if volume.secret is not None:
        yield f"{where}.secret.secretName", volume.secret.secret_name
    if volume.projected is not None:
        for number, source in enumerate(volume.projected.sources):
            if source.secret is not None:
                yield f"{where}.projected.sources[{number}].secret.name", source.secret.name


def _claims_named(pod: PodSettings) -> Iterator[tuple[str, str]]:
    for volume in pod.volumes:
        if volume.persistent_volume_claim is not None:
            where = f"spec.pod.volumes ({volume.name}).persistentVolumeClaim.claimName"
            yield where, volume.persistent_volume_claim.claim_name
