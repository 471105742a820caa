"""The operator's decision for one topology: from what is seen to what is done. Pure, and level-based.

`decide` is asked again and again, and after any crash; it goes on from whatever it sees. Its parts are small
modules by role; this one calls them in order.
"""

from __future__ import annotations

from penstock_operator.cluster.actions import Decision
from penstock_operator.cluster.memory import Memory
from penstock_operator.cluster.observed import Observed


def decide(observed: Observed, memory: Memory, now_s: float) -> Decision:
    """What to do now. `now_s` is of a monotonic clock."""
    raise NotImplementedError
