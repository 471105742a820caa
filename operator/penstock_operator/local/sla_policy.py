"""From a LatencySLA's `policy` to the code that decides, with what stands around every policy in a live run.

Policies are imported where they are asked for: a run without an SLA needs none of them. Neighbours:
`penstock.control` holds the policies and `guard`, `sla_loop` asks one.
"""

from __future__ import annotations

from penstock.control.policy import Policy
from penstock.control.target import Scope


def policy_of(name: str, scope: Scope) -> Policy:
    """The policy called `name` in a LatencySLA, guarded.

    ValueError for a name that the manifest's model does not know.
    """
    from penstock.control.guard import Guard

    return Guard(_inner(name, scope), scope)


def has_single_tasks(name: str) -> bool:
    """Whether an executor has exactly one task under this policy, as in StreamSwitch."""
    return name == "StreamSwitch"


def _inner(name: str, scope: Scope) -> Policy:
    from penstock.control.streamswitch import StreamSwitch

    if name == "StreamSwitch":
        return StreamSwitch(scope)
    from penstock.control.elasticutor import Elasticutor

    if name == "Elasticutor":
        return Elasticutor(scope)
    from penstock.control.hybrid import Hybrid

    if name == "Hybrid":
        return Hybrid(scope, Elasticutor(scope), StreamSwitch(scope))
    raise ValueError(f"there is no policy {name}")
