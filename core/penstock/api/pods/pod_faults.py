"""What must hold between the entries of a Topology's `spec.pod`: no name twice, and a volume for each mount.

Like `graph` it works on the plain document, so that these faults are listed together with the fields' own.
Neighbours: `load` calls it; the API server has the same rules as list keys and CEL in `pod_settings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.manifest.faults import Fault, listed, nearest

_KEYS = {"env": "name", "volumes": "name", "volumeMounts": "mountPath", "imagePullSecrets": "name"}


def pod_faults(pod: object) -> list[Fault]:
    """Faults of `spec.pod`, a plain document. Never raises for what a user can write."""
    if not isinstance(pod, dict):
        return []
    faults: list[Fault] = []
    for name, key in _KEYS.items():
        seen: dict[str, str] = {}
        for path, entry in _entries(pod, name):
            value = entry.get(key)
            if not isinstance(value, str):
                continue
            if value in seen:
                faults.append(Fault(f"{path}.{key}", f"{value!r} is at {seen[value]} already; keep one"))
            seen.setdefault(value, path)
    volumes = [str(entry.get("name")) for _, entry in _entries(pod, "volumes")]
    for path, entry in _entries(pod, "volumeMounts"):
        wanted = entry.get("name")
        if isinstance(wanted, str) and wanted not in volumes:
            message = f"no volume is called {wanted!r}{nearest(wanted, volumes)}; there are {listed(volumes)}"
            faults.append(Fault(f"{path}.name", message))
    return faults


def _entries(pod: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Path and content of the objects in one of the lists."""
    listing = pod.get(name)
    for index, entry in enumerate(listing if isinstance(listing, list) else ()):
        if isinstance(entry, dict):
            named = f" ({entry['name']})" if isinstance(entry.get("name"), str) else ""
            yield f"spec.pod.{name}[{index}]{named}", entry
