"""Names that follow from an operator's: of the sink of its late rows, of the source of its initial state.

Neighbours: `graph` and `initial_state` ask here.
"""

from __future__ import annotations

from penstock.api.operators import Graph, Operator
from penstock.manifest.document import NAME_LENGTH_MAX
from penstock.manifest.faults import Fault


def too_long(operator: Operator, field: str, what: str, suffix: str) -> list[Fault]:
    """The fault of an operator whose `field` makes a `what` that is called as it with `suffix` behind, where
    that is too long a name. An operator's own name has a fault of its own where it is."""
    name, most = operator.name, NAME_LENGTH_MAX - len(suffix)
    if name is None or not most < len(name) <= NAME_LENGTH_MAX:
        return []
    message = (
        f"its {what} is called {name + suffix!r}, which is too long: give the operator a name of at most "
        f"{most} characters"
    )
    return [Fault(f"{operator.path}.{field}", message)]


def taken(operator: Operator, field: str, what: str, suffix: str, graph: Graph) -> list[Fault]:
    """The same, where an operator has that name."""
    other = graph.operators.get(f"{operator.name}{suffix}")
    if other is None:
        return []
    message = f"its {what} is called {other.name!r}, as {other.path} is already; rename that operator"
    return [Fault(f"{operator.path}.{field}", message)]
