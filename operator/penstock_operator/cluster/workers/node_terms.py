"""Whether a node fits what pods and volumes require of one, as Kubernetes' scheduler has it.

Pure. Neighbours: `node_room` asks for pods, `stores.homeless` for volumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def fits_terms(terms: Iterable[Mapping[str, Any]], name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node fits one of `terms`, nodeSelectorTerms as an object of the API has them."""
    return any(_fits(term, name, labels) for term in terms)


def meets(operator: str, values: Sequence[str], value: str | None) -> bool:
    """Whether a label's value (None: there is none) meets a requirement."""
    match operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in values
        case "NotIn":
            return value not in values
    if value is None or not _is_number(value) or not values or not _is_number(values[0]):
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])


def _fits(term: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    fields = {"metadata.name": name}
    requirements = [
        *((one, labels) for one in term.get("matchExpressions") or ()),
        *((one, fields) for one in term.get("matchFields") or ()),
    ]
    return bool(requirements) and all(
        meets(str(one["operator"]), one.get("values") or (), of.get(str(one["key"])))
        for one, of in requirements
    )


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()
