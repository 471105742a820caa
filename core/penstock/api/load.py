"""A manifest file -> models, or every fault in it at once.

`load_manifest` is the edge: YAML (`yaml_text`), overrides (`overrides`), fields (the models, worded
by `faults`), the graph between operators (`graph`), the pods' settings (`pod_faults`), and on wish the
user's code (`code`) and its rate traces (`rate_traces`). `compile` goes on from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from penstock.api.code import missing_code
from penstock.api.code_and_args import with_args_beside
from penstock.api.graph import Runtime, check
from penstock.api.latency_sla import LatencySLA
from penstock.api.overrides import apply_overrides
from penstock.api.pods.pod_faults import pod_faults
from penstock.api.rate_traces import rate_trace_faults
from penstock.api.sla_faults import sla_faults, window_faults
from penstock.api.specs.on_error_spec import with_on_error_whole
from penstock.api.topology import Topology
from penstock.api.yaml_text import read_documents
from penstock.manifest.document import API_VERSION
from penstock.manifest.faults import Fault, InvalidManifest, listed, nearest, schema_faults, shown

_KINDS: Mapping[str, type[Topology] | type[LatencySLA]] = {"Topology": Topology, "LatencySLA": LatencySLA}

KindT = TypeVar("KindT", Topology, LatencySLA)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a file holds, in its order."""

    topologies: tuple[Topology, ...]
    latency_slas: tuple[LatencySLA, ...]

    @property
    def topology(self) -> Topology:
        """The only Topology. Raises InvalidManifest where there is none, or more than one."""
        if len(self.topologies) == 1:
            return self.topologies[0]
        names = listed(topology.metadata.name for topology in self.topologies)
        message = f"exactly one Topology is wanted here; the file has {names}"
        raise InvalidManifest([Fault("", message)])


def load_manifest(
    path: Path, overrides: Sequence[str] = (), *, runtime: Runtime = "local", with_code: bool = False
) -> Manifest:
    """Read, change (`--set`, see `apply_overrides`) and check the manifest at `path`.

    `with_code` also looks at the files that it names: whether the code is there, beside the manifest or
    installed (without running it), and whether rate traces can be read. Raises InvalidManifest with all
    faults.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InvalidManifest([Fault(str(path), "no such file; give the path of a manifest")]) from error
    except UnicodeDecodeError as error:
        raise InvalidManifest([Fault(str(path), f"is not UTF-8 text: {error.reason}")]) from error
    except OSError as error:
        raise InvalidManifest([Fault(str(path), f"cannot be read: {error.strerror}")]) from error
    return parse_manifest(text, overrides, runtime=runtime, code_dir=path.parent if with_code else None)


def load_topology(path: str | Path, overrides: Sequence[str] = (), *, runtime: Runtime = "local") -> Topology:
    """The one Topology in the manifest at `path`, as a worker reads it."""
    return load_manifest(Path(path), overrides, runtime=runtime).topology


def parse_manifest(
    text: str, overrides: Sequence[str] = (), *, runtime: Runtime = "local", code_dir: Path | None = None
) -> Manifest:
    """As `load_manifest`, from text. `code_dir` is where to look for code and rate traces; None does not
    look."""
    documents, faults = read_documents(text)
    if not documents:
        faults.append(Fault("", f"nothing in it; begin with apiVersion: {API_VERSION}, kind: Topology"))
    told: list[list[Fault]] = []
    for at, document in enumerate(documents):
        beside, wrong = with_args_beside(document, runtime)
        documents[at], short = with_on_error_whole(beside, in_cluster=runtime == "cluster")
        told.append([*wrong, *short])
    if overrides:
        faults += _override(documents, overrides)
    objects: list[Topology | LatencySLA] = []
    for number, (document, wrong) in enumerate(zip(documents, told, strict=True), start=1):
        found = _read(document, runtime, code_dir, wrong)
        prefix = f"document {number}: " if len(documents) > 1 else ""
        faults += [Fault(prefix + fault.path, fault.message) for fault in found.faults]
        if found.object is not None:
            objects.append(found.object)
    topologies = tuple(item for item in objects if isinstance(item, Topology))
    slas = tuple(item for item in objects if isinstance(item, LatencySLA))
    faults += _between(topologies, slas)
    if faults:
        raise InvalidManifest(faults)
    return Manifest(topologies, slas)


def read_topology(document: Mapping[str, Any]) -> Topology:
    """The Topology in an object as the API server has it. Its status is left out, and so is the metadata that
    says nothing of what to compute. Raises InvalidManifest with all faults."""
    return _read_object(document, Topology)


def read_latency_sla(document: Mapping[str, Any]) -> LatencySLA:
    """The same for a LatencySLA."""
    return _read_object(document, LatencySLA)


def _read_object(document: Mapping[str, Any], kind: type[KindT]) -> KindT:
    metadata = document["metadata"]
    metadata = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
    head = {key: document[key] for key in ("apiVersion", "kind", "spec") if key in document}
    found = _read({**head, "metadata": metadata}, "cluster", None)
    if not isinstance(found.object, kind) or found.faults:
        raise InvalidManifest(found.faults)
    return found.object


def manifest_text(manifest: Manifest) -> str:
    """The manifest as YAML that `parse_manifest` reads back: overrides are in it."""
    documents = [
        item.model_dump(by_alias=True, exclude_unset=True, mode="json")
        for item in (*manifest.topologies, *manifest.latency_slas)
    ]
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)


@dataclass(frozen=True, slots=True)
class _Read:
    object: Topology | LatencySLA | None
    faults: list[Fault]


def _read(document: object, runtime: Runtime, code_dir: Path | None, told: Sequence[Fault] = ()) -> _Read:
    """`told` are faults that were found before; what else there is to say of their places is not said."""
    if not isinstance(document, dict):
        message = f"{shown(document)} is no manifest; give an object with apiVersion, kind, metadata and spec"
        return _Read(None, [Fault("", message)])
    kind = document.get("kind")
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        return _Read(None, [Fault("kind", _unknown_kind(kind))])
    faults: list[Fault] = list(told)
    parsed: Topology | LatencySLA | None = None
    try:
        parsed = model.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        faults += (
            fault
            for fault in schema_faults(error, model, document)
            if not any(f"{wrong.path}.".startswith(f"{fault.path}.") for wrong in told)
        )
    spec = document.get("spec")
    if model is LatencySLA and parsed is None:
        known = {fault.message for fault in faults}
        faults += (fault for fault in window_faults(spec) if fault.message not in known)
    if model is Topology and isinstance(spec, dict):
        faults += check(spec, runtime).faults
        faults += pod_faults(spec.get("pod"))
        if code_dir is not None:
            faults += missing_code(spec, code_dir)
            faults += rate_trace_faults(spec, code_dir)
    return _Read(parsed, faults)


def _unknown_kind(kind: object) -> str:
    if kind == "Schedule":
        return "a Schedule is written by Penstock itself, not by hand"
    known = listed(_KINDS)
    if kind is None:
        return f"is missing; give one of {known}"
    return f"{shown(kind)} is unknown{nearest(str(kind), list(_KINDS))}; give one of {known}"


def _override(documents: list[Any], overrides: Sequence[str]) -> list[Fault]:
    """Apply overrides to the one Topology among `documents`, in place."""
    kinds = [item.get("kind") if isinstance(item, dict) else None for item in documents]
    places = [at for at, kind in enumerate(kinds) if kind == "Topology"]
    if len(places) != 1:
        return [Fault("--set", f"works on a file with exactly one Topology; this one has {len(places)}")]
    documents[places[0]], faults = apply_overrides(documents[places[0]], overrides)
    return faults


def _between(topologies: Sequence[Topology], slas: Sequence[LatencySLA]) -> list[Fault]:
    """What does not fit between the objects of one file."""
    faults: list[Fault] = []
    names: set[str] = set()
    for topology in topologies:
        name = topology.metadata.name
        if name in names:
            faults.append(Fault(f"Topology {name}", "comes twice in this file; names are unique"))
        names.add(name)
    return faults + sla_faults(topologies, slas)
