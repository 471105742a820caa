"""Kubernetes events on a Topology or a LatencySLA: one for each transition, best effort."""

from __future__ import annotations

from datetime import datetime

from penstock_operator.cluster.decisions.actions import Event
from penstock_operator.cluster.kubernetes_api.port import EVENTS, Object

_CONTROLLER = "penstock.dev/operator"
_NOTE_LENGTH_MAX = 1024


def event_object(event: Event, thing: Object, now: datetime, reporter: str) -> Object:
    """The object for `event` on `thing`, reported by the pod `reporter`."""
    metadata = thing["metadata"]
    note = event.message
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": f"{metadata['name']}.{int(now.timestamp() * 1e6):x}",
            "namespace": metadata["namespace"],
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": _CONTROLLER,
        "reportingInstance": reporter,
        "action": event.reason,
        "reason": event.reason,
        "type": event.type,
        "note": note if len(note) <= _NOTE_LENGTH_MAX else f"{note[: _NOTE_LENGTH_MAX - 3]}...",
        "regarding": {
            "apiVersion": thing["apiVersion"],
            "kind": thing["kind"],
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }
