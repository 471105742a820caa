"""What every object carries beside its spec: Kubernetes' metadata, and the conditions of a status."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from penstock.manifest.document import Document, ObjectName, keyed_list


class ObjectMeta(Document):
    """Metadata as a user writes it or the API server returns it."""

    name: ObjectName
    namespace: ObjectName | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    finalizers: Annotated[tuple[str, ...], Field(strict=False)] = ()
    owner_references: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = ()
    managed_fields: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = ()


class Condition(Document):
    """One condition of a status, as Kubernetes words them."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """Ready, Progressing, SLAMet, Rebalancing, StoreAvailable or MetricsUnavailable; Reconciling or Stalled
    only while they are True, as kstatus reads them."""
    status: Literal["True", "False", "Unknown"]
    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """The generation of the spec that this condition speaks of."""
    last_transition_time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
    """When `status` last changed."""
    reason: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]*$", max_length=128)]
    """One word in CamelCase."""
    message: Annotated[str, StringConstraints(max_length=4096)] = ""
    """One sentence for people."""


Conditions = Annotated[tuple[Condition, ...], keyed_list(16, "type")]
ObservedGeneration = Annotated[int, Field(ge=-1, json_schema_extra={"format": "int64"})]
NOT_SEEN_YET: dict[str, Any] = {"default": {"observedGeneration": -1}}
"""Schema extra of a status: who reads it before the operator has written one, as kstatus does, is not to take
the object for settled."""
