"""What a user may say about the pods of a topology: environment, volumes, where they may run, pull secrets.

Names and shapes are those of Kubernetes' own Pod. What the operator sets itself cannot be set here: each such
field says so, to the API server (CEL) and to `penstock validate`. A service account is for code that asks for
one: workers themselves talk to their store alone, and have no token. Neighbours: `topology` holds this as
`spec.pod`, `operator_config` uses the tolerations, `pod_faults` checks what holds between the entries of its
lists.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from penstock.manifest.document import (
    EXPECTED,
    Document,
    ObjectName,
    StorageSize,
    atomic_list,
    cel,
    keyed_list,
)

MAP_ENTRIES_MAX = 64
VOLUMES_MAX = 16
MOUNTS_MAX = 32

_ENV_PREFIX = "PENSTOCK_"
_VOLUME_PREFIX = "penstock-"
_KEY_PREFIXES = ("penstock.dev/", "app.kubernetes.io/")
# /run is where /var/run leads to.
_PATHS_TAKEN = r"^/(tmp|etc|var|run|var/run|(etc|run|var/run)/penstock(/.*)?)$"

ENV_TAKEN = "environment variables called PENSTOCK_ are the operator's own; choose another name"
VOLUME_TAKEN = "volumes called penstock- are the operator's own; choose another name"
KEY_TAKEN = "keys below penstock.dev/ and app.kubernetes.io/ are the operator's own; choose another prefix"
PATH_TAKEN = (
    "/tmp, /etc/penstock, /run/penstock, /var/run/penstock and the folders that hold them "  # noqa: S108
    "are the operator's own; mount it elsewhere"
)


def _env_name(name: str) -> str:
    if name.startswith(_ENV_PREFIX):
        raise ValueError(ENV_TAKEN)
    return name


def _volume_name(name: str) -> str:
    if name.startswith(_VOLUME_PREFIX):
        raise ValueError(VOLUME_TAKEN)
    return name


def _mount_path(path: str) -> str:
    if re.fullmatch(_PATHS_TAKEN[1:-1], path):
        raise ValueError(PATH_TAKEN)
    return path


def _own_keys(entries: dict[str, str]) -> dict[str, str]:
    taken = [key for key in entries if key.startswith(_KEY_PREFIXES)]
    if taken:
        raise ValueError(f"{taken[0]!r}: {KEY_TAKEN}")
    return entries


def _one_of(*fields: str) -> tuple[str, str]:
    """The CEL rule that exactly one of `fields` is given, and its sentence."""
    given = ", ".join(f"has(self.{field})" for field in fields)
    words = f"{', '.join(fields[:-1])} and {fields[-1]}"
    return f"[{given}].filter(given, given).size() == 1", f"exactly one of {words}"


class _OneOf(Document):
    """A part with one field out of several; `_choices` are their names outside, in order."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        choices = [name for name, field in type(self).model_fields.items() if field.default is None]
        given = [name for name in choices if getattr(self, name) is not None]
        if len(given) != 1:
            names = [str(type(self).model_fields[name].alias) for name in choices]
            has = f"has {len(given)} of" if given else "has none of"
            raise ValueError(f"{has} {', '.join(names)}; give exactly one")
        return self


# --- environment -------------------------------------------------------------------------------

EnvName = Annotated[
    str,
    StringConstraints(pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$", max_length=253),
    AfterValidator(_env_name),
    Field(
        json_schema_extra={
            EXPECTED: "the name of an environment variable",
            **cel(("!self.startsWith('PENSTOCK_')", ENV_TAKEN)),
        }
    ),
]
DataKey = Annotated[
    str,
    StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$", min_length=1, max_length=253),
    Field(json_schema_extra={EXPECTED: "a key of a Secret or ConfigMap"}),
]


class KeyRef(Document):
    """One key of a Secret or ConfigMap."""

    name: ObjectName
    key: DataKey
    optional: bool = False


class FieldRef(Document):
    """A field of the pod itself."""

    field_path: Annotated[
        str,
        StringConstraints(
            pattern=r"^(metadata\.(name|namespace|uid|(labels|annotations)\['[-._/a-zA-Z0-9]+'\])"
            r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs))$",
            max_length=317,
        ),
        Field(json_schema_extra={EXPECTED: "a field of the pod such as metadata.name or spec.nodeName"}),
    ]


class EnvSource(_OneOf):
    """Where a variable's value comes from: exactly one."""

    model_config = ConfigDict(
        json_schema_extra=cel(_one_of("secretKeyRef", "configMapKeyRef", "fieldRef")),
    )

    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None


class EnvVar(Document):
    """An environment variable of the workers."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("has(self.value) != has(self.valueFrom)", "exactly one of value and valueFrom")
        )
    )

    name: EnvName
    value: Annotated[str, StringConstraints(max_length=32_768)] | None = None
    value_from: EnvSource | None = None

    @model_validator(mode="after")
    def _has_a_value(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise ValueError("give exactly one of value and valueFrom")
        return self


class NameRef(Document):
    """A Secret or ConfigMap of the topology's namespace."""

    name: ObjectName
    optional: bool = False


class EnvFrom(Document):
    """All keys of a Secret or ConfigMap as variables. The operator's own win over them."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("has(self.secretRef) != has(self.configMapRef)", "exactly one of secretRef and configMapRef")
        )
    )

    prefix: EnvName | None = None
    """Put before each key."""
    secret_ref: NameRef | None = None
    config_map_ref: NameRef | None = None

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        if (self.secret_ref is None) == (self.config_map_ref is None):
            raise ValueError("give exactly one of secretRef and configMapRef")
        return self


# --- volumes -----------------------------------------------------------------------------------

VolumeName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63),
    AfterValidator(_volume_name),
    Field(
        json_schema_extra={
            EXPECTED: "a name of at most 63 small letters, digits and '-'",
            **cel(("!self.startsWith('penstock-')", VOLUME_TAKEN)),
        }
    ),
]
FileMode = Annotated[int, Field(ge=0, le=0o777)]
_INSIDE = r"^[^/.][^/]*(/[^/.][^/]*)*$"
InsidePath = Annotated[
    str,
    StringConstraints(pattern=_INSIDE, max_length=1024),
    Field(json_schema_extra={EXPECTED: "a relative path without '..'"}),
]


class KeyToPath(Document):
    """Which key becomes which file."""

    key: DataKey
    path: InsidePath
    mode: FileMode | None = None


KeyItems = Annotated[tuple[KeyToPath, ...], atomic_list(64)]


class ConfigMapVolume(Document):
    name: ObjectName
    items: KeyItems = ()
    """Without them each key is a file."""
    default_mode: FileMode | None = None
    optional: bool = False


class SecretVolume(Document):
    secret_name: ObjectName
    items: KeyItems = ()
    """Without them each key is a file."""
    default_mode: FileMode | None = None
    optional: bool = False


class ClaimVolume(Document):
    claim_name: ObjectName
    read_only: bool = False


class EmptyDirVolume(Document):
    """A folder that lives as long as the pod."""

    medium: Literal["", "Memory"] = ""
    size_limit: (
        Annotated[
            str,
            StringConstraints(pattern=r"^[1-9][0-9]*(k|M|G|T|Ki|Mi|Gi|Ti)?$", max_length=16),
            Field(json_schema_extra={EXPECTED: "an amount such as 500Mi"}),
        ]
        | None
    ) = None


class ProjectedKeys(Document):
    name: ObjectName
    items: KeyItems = ()
    optional: bool = False


class ProjectedSource(_OneOf):
    """A Secret or ConfigMap; a service account's token is not to be had."""

    model_config = ConfigDict(json_schema_extra=cel(_one_of("secret", "configMap")))

    secret: ProjectedKeys | None = None
    config_map: ProjectedKeys | None = None


class ProjectedVolume(Document):
    """Several Secrets and ConfigMaps in one folder."""

    sources: Annotated[tuple[ProjectedSource, ...], atomic_list(16, minimum=1)]
    default_mode: FileMode | None = None


_VOLUME_KINDS = ("configMap", "secret", "persistentVolumeClaim", "emptyDir", "projected")


class VolumeSpec(_OneOf):
    """A volume of the pods: exactly one kind."""

    model_config = ConfigDict(json_schema_extra=cel(_one_of(*_VOLUME_KINDS)))

    name: VolumeName
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    empty_dir: EmptyDirVolume | None = None
    projected: ProjectedVolume | None = None


class VolumeMount(Document):
    """Where a volume is seen in the worker."""

    name: VolumeName
    mount_path: Annotated[
        str,
        StringConstraints(
            pattern=r"^(/\.?[A-Za-z0-9_+@=,~-][A-Za-z0-9._+@=,~-]*)+$", min_length=2, max_length=1024
        ),
        AfterValidator(_mount_path),
        Field(
            json_schema_extra={
                EXPECTED: "an absolute path such as /data, without '..' and without a '/' at its end",
                **cel((f"!self.matches('{_PATHS_TAKEN}')", PATH_TAKEN)),
            }
        ),
    ]
    sub_path: InsidePath | None = None
    read_only: bool = False


# --- where pods may run ------------------------------------------------------------------------

LabelKey = Annotated[
    str,
    StringConstraints(
        pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        max_length=317,
    ),
    Field(json_schema_extra={EXPECTED: "a label's key"}),
]
LabelValue = Annotated[
    str,
    StringConstraints(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63),
    Field(json_schema_extra={EXPECTED: "a label's value"}),
]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=MAP_ENTRIES_MAX)]


def _keys_of(*prefixes: str) -> dict[str, Any]:
    conditions = " && ".join(f"!key.startsWith('{prefix}')" for prefix in prefixes)
    return cel((f"self.all(key, {conditions})", KEY_TAKEN))


OwnLabels = Annotated[Labels, AfterValidator(_own_keys), Field(json_schema_extra=_keys_of(*_KEY_PREFIXES))]
OwnAnnotations = Annotated[
    dict[LabelKey, Annotated[str, StringConstraints(max_length=16_384)]],
    Field(max_length=MAP_ENTRIES_MAX),
    AfterValidator(_own_keys),
    Field(json_schema_extra=_keys_of(*_KEY_PREFIXES)),
]


class Toleration(Document):
    """A taint of nodes that pods put up with."""

    key: LabelKey | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None


Tolerations = Annotated[tuple[Toleration, ...], atomic_list(32)]
MatchValues = Annotated[tuple[LabelValue, ...], atomic_list(64)]
Weight = Annotated[int, Field(ge=1, le=100)]


class NodeRequirement(Document):
    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: MatchValues = ()


class NodeTerm(Document):
    """Requirements that hold together."""

    match_expressions: Annotated[tuple[NodeRequirement, ...], atomic_list(16)] = ()
    match_fields: Annotated[tuple[NodeRequirement, ...], atomic_list(16)] = ()


class NodeSelection(Document):
    """One of the terms has to hold."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], atomic_list(16, minimum=1)]


class WeightedNodeTerm(Document):
    weight: Weight
    preference: NodeTerm


class NodeAffinity(Document):
    required_during_scheduling_ignored_during_execution: NodeSelection | None = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedNodeTerm, ...], atomic_list(16)
    ] = ()


class LabelRequirement(Document):
    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: MatchValues = ()


class LabelSelector(Document):
    match_labels: Labels = Field(default_factory=dict)
    match_expressions: Annotated[tuple[LabelRequirement, ...], atomic_list(16)] = ()


class PodTerm(Document):
    """Pods with these labels, on nodes that share the value of the label `topologyKey`."""

    label_selector: LabelSelector | None = None
    namespaces: Annotated[tuple[ObjectName, ...], atomic_list(16)] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: LabelKey


class WeightedPodTerm(Document):
    weight: Weight
    pod_affinity_term: PodTerm


class PodAffinity(Document):
    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodTerm, ...], atomic_list(16)] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodTerm, ...], atomic_list(16)
    ] = ()


class Affinity(Document):
    """Which nodes, and which pods as neighbours. The operator chooses each pod's node within this."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


# --- all of it ---------------------------------------------------------------------------------


class PullSecret(Document):
    name: ObjectName


PullSecrets = Annotated[tuple[PullSecret, ...], keyed_list(16, "name")]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
ImageName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][-A-Za-z0-9._/:@]*$", min_length=1, max_length=512),
    Field(json_schema_extra={EXPECTED: "an image such as example.org/team/words:1.2"}),
]


class PodSettings(Document):
    """Settings of the topology's pods, worded as in a Pod. A change rolls them worker by worker."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && "
                "self.volumes.exists(v, v.name == m.name))",
                "each volumeMount names one of volumes",
            )
        )
    )

    env: Annotated[tuple[EnvVar, ...], keyed_list(128, "name")] = ()
    env_from: Annotated[tuple[EnvFrom, ...], atomic_list(16)] = ()
    volumes: Annotated[tuple[VolumeSpec, ...], keyed_list(VOLUMES_MAX, "name")] = ()
    volume_mounts: Annotated[tuple[VolumeMount, ...], keyed_list(MOUNTS_MAX, "mountPath")] = ()
    tolerations: Tolerations = ()
    node_selector: Labels = Field(default_factory=dict)
    affinity: Affinity | None = None
    image_pull_secrets: PullSecrets = ()
    service_account_name: ObjectName | None = None
    """One of those that Penstock was installed to allow: its token is mounted for the topology's code.
    Without it workers have none."""
    tmp_size: StorageSize | None = None
    """What a worker may write below /tmp; without it what Penstock was installed with."""
    labels: OwnLabels = Field(default_factory=dict)
    annotations: OwnAnnotations = Field(default_factory=dict)
