"""The port to the Kubernetes API: just the calls that the operator needs, and what they answer.

Two adapters keep this contract: `kubernetes_api.client` (kubernetes.aio) and `memory_cluster` (the twin that
tests run on); `tests/contract/test_cluster_api.py` runs one suite on both. Objects are JSON as the API
server has it, as plain dicts: the few fields that matter are read where they are needed.

What another writer may have caused by then (it is there already, it has changed, it is gone) is no error
but a `Refusal`: the caller drops its decision and looks again. Everything else is raised as one of the
four kinds of `penstock.errors`:

  ClusterUnreachable  retry: no connection, a time-out, too many requests, the server's own fault
  ObjectInvalid       permanent: the API server does not take this object (schema, CEL, quota)
  NotAllowed          permanent: the service account lacks a right
  KindUnknown         permanent: the CRDs are not installed
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from penstock.errors import PermanentError, RetryError

FIELD_MANAGER = "penstock-operator"

Object = dict[str, Any]


class ClusterUnreachable(RetryError):
    """The API server gave no answer, or says to come again."""


class ObjectInvalid(PermanentError):
    """The API server refuses the object; the message is its own."""


class NotAllowed(PermanentError):
    """The service account must not do this; the message names verb and kind."""


class KindUnknown(PermanentError):
    """The API server does not serve this kind."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object as the API's paths name it. `api_version` is "v1" or "group/version"."""

    api_version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    @property
    def root(self) -> str:
        """Where its paths begin."""
        return f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"


TOPOLOGIES = Kind("penstock.dev/v1alpha1", "Topology", "topologies")
LATENCY_SLAS = Kind("penstock.dev/v1alpha1", "LatencySLA", "latencyslas")
SCHEDULES = Kind("penstock.dev/v1alpha1", "Schedule", "schedules")
PODS = Kind("v1", "Pod", "pods")
NODES = Kind("v1", "Node", "nodes", is_namespaced=False)
CONFIG_MAPS = Kind("v1", "ConfigMap", "configmaps")
SECRETS = Kind("v1", "Secret", "secrets")
STATEFUL_SETS = Kind("apps/v1", "StatefulSet", "statefulsets")
VOLUME_CLAIMS = Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
VOLUMES = Kind("v1", "PersistentVolume", "persistentvolumes", is_namespaced=False)
DISRUPTION_BUDGETS = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICIES = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
LEASES = Kind("coordination.k8s.io/v1", "Lease", "leases")
EVENTS = Kind("events.k8s.io/v1", "Event", "events")


class Why(StrEnum):
    """Why the API server did not do as asked."""

    EXISTS = "exists"
    CHANGED = "changed"
    """Another resourceVersion or uid than the one named."""
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Another writer came first."""

    why: Why
    message: str


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind at one moment, and the resourceVersion of that moment."""

    items: tuple[Object, ...]
    resource_version: str


class ClusterApi(Protocol):
    """One namespace's objects, and those of the cluster. Every call may raise the errors of this module.

    Objects that go in are not kept, objects that come out are the caller's own.
    """

    @property
    def namespace(self) -> str: ...

    def within(self, namespace: str) -> ClusterApi:
        """The same cluster, seen from another namespace. It is closed with this one."""

    async def list(
        self,
        kind: Kind,
        labels: Mapping[str, str] = {},
        *,
        everywhere: bool = False,
        keep: Callable[[Object], Object] | None = None,
        between: Callable[[float], Awaitable[None]] | None = None,
    ) -> Listing:
        """Every object with these labels; `everywhere`: in all namespaces. Of each what `keep` answers: there
        may be thousands. They come in pages; `between` is awaited between two of them, with the seconds that
        the one before took."""

    async def get(self, kind: Kind, name: str) -> Object | None: ...

    async def create(self, kind: Kind, manifest: Object) -> Object | Refusal:
        """The new object as it is now, or EXISTS."""

    async def replace(self, kind: Kind, changed: Object) -> Object | Refusal:
        """Write the whole object if its metadata.resourceVersion is still the present one; else CHANGED
        or GONE. Its status is left as it is."""

    async def apply(self, kind: Kind, manifest: Object) -> Object:
        """Server-side apply as FIELD_MANAGER, by force: create it, or make the fields named here so and take
        away those named before and no more."""

    async def apply_status(self, kind: Kind, manifest: Object) -> Object | Refusal:
        """The same for the status of an object that exists; GONE. The name alone decides which object: for
        custom resources the API server looks at no uid here."""

    async def delete(self, kind: Kind, name: str, uid: str, grace_s: int | None = None) -> Refusal | None:
        """Delete the object of this name and uid; GONE, CHANGED when the name has another uid by now.

        A pod gets `grace_s` seconds (None: its own terminationGracePeriodSeconds) and is listed until its
        node let go of it. What it owns is removed by and by.
        """

    async def resize_pod(
        self, name: str, uid: str, container: str, requests: Mapping[str, str], limits: Mapping[str, str]
    ) -> Object | Refusal:
        """Change a container's resources in place; GONE, CHANGED as `delete`."""

    async def close(self) -> None: ...


def name_of(thing: Mapping[str, Any]) -> str:
    return str(thing["metadata"]["name"])


def uid_of(thing: Mapping[str, Any]) -> str:
    return str(thing["metadata"]["uid"])


def version_of(thing: Mapping[str, Any]) -> str:
    """The resourceVersion."""
    return str(thing["metadata"]["resourceVersion"])
