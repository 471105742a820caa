"""What the operator asks of the Kubernetes API, read off its code: each call of the cluster's port.

A call whose kind is a variable is not seen, so `ELSEWHERE` says what such calls are made for. Neighbour: the
test of the chart compares it with what the chart grants.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from house import ROOT
from penstock_operator.cluster.kubernetes_api import port
from penstock_operator.cluster.kubernetes_api.mirror import WATCHED
from penstock_operator.cluster.kubernetes_api.port import LATENCY_SLAS, PODS, TOPOLOGIES, Kind

Right = tuple[str, str, str]
"""API group, resource, verb."""

_OPERATOR = ROOT / "operator/penstock_operator/cluster"
_OTHER_ACCOUNTS = ("uninstall.py", "accept_loss.py", "asked")
"""Whose code works under the account of the uninstall hook, or of the user who runs the command."""
_VERBS = {
    "list": ("list",),
    "get": ("get",),
    "create": ("create",),
    "replace": ("update",),
    "apply": ("patch", "create"),
    "_apply": ("patch", "create"),
    "delete": ("delete",),
    "_delete": ("delete", "get"),
}
ELSEWHERE: tuple[tuple[Kind, str, tuple[str, ...]], ...] = (
    *((kind, "", ("list", "watch")) for kind in WATCHED),  # `watches`, `reconcile`
    (TOPOLOGIES, "/status", ("patch",)),  # `topology_status`, as the next
    (LATENCY_SLAS, "/status", ("patch",)),
    (PODS, "/resize", ("patch",)),
    # An owner reference that blocks its owner's deletion, where the API server guards them (`ownership`).
    (TOPOLOGIES, "/finalizers", ("update",)),
)
NOT_NEEDED = {("", "persistentvolumeclaims", "create")}
"""Applied is only what is there."""
_KINDS = {name: value for name, value in vars(port).items() if isinstance(value, Kind)}


def called_rights() -> set[Right]:
    """Every right that the operator's code makes use of."""
    found = {right for path in sorted(_OPERATOR.rglob("*.py")) for right in _of_file(path)}
    found |= {_right(kind, part, verb) for kind, part, verbs in ELSEWHERE for verb in verbs}
    return found - NOT_NEEDED


def _of_file(path: Path) -> Iterator[Right]:
    if path.name in _OTHER_ACCOUNTS or path.parent.name in _OTHER_ACCOUNTS:
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        first = node.args[0]
        if not (isinstance(first, ast.Name) and first.id in _KINDS) or _is_mirror(node.func.value):
            continue
        kind, method = _KINDS[first.id], node.func.attr
        if method == "apply_status":
            yield _right(kind, "/status", "patch")
        for verb in _VERBS.get(method, ()):
            yield _right(kind, "", verb)


def _is_mirror(called: ast.expr) -> bool:
    """The operator's own copy of objects, which has a `get` too."""
    return "mirror" in ast.unparse(called)


def _right(kind: Kind, part: str, verb: str) -> Right:
    group = kind.api_version.rpartition("/")[0]
    return group, f"{kind.plural}{part}", verb
