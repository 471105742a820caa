"""Who looks ahead for a policy. Neighbours: the modules beside this one, one a policy; `replay` asks."""

from __future__ import annotations

from penstock.control.baselines.drs import Drs
from penstock.control.baselines.static import Static
from penstock.control.elasticutor.policy import Elasticutor
from penstock.control.guard import Guard
from penstock.control.hybrid.policy import Hybrid
from penstock.control.policy import Policy
from penstock.control.streamswitch.policy import StreamSwitch
from penstock.simulation.queueing.ahead.drs import DrsAhead
from penstock.simulation.queueing.ahead.elasticutor import ElasticutorAhead
from penstock.simulation.queueing.ahead.guard import GuardAhead
from penstock.simulation.queueing.ahead.hybrid import HybridAhead
from penstock.simulation.queueing.ahead.looking import ObservesMany
from penstock.simulation.queueing.ahead.static import StaticAhead
from penstock.simulation.queueing.ahead.streamswitch import StreamSwitchAhead


def looking_ahead(policy: Policy) -> ObservesMany | None:
    """Who takes in many looks at once for `policy`; None where each has to be shown by itself."""
    match policy:
        case ObservesMany():
            return policy
        case StreamSwitch():
            return StreamSwitchAhead(policy)
        case Elasticutor():
            return ElasticutorAhead(policy)
        case Drs():
            return DrsAhead(policy)
        case Static():
            return StaticAhead(policy)
        case Hybrid():
            return _hybrid(policy)
        case Guard():
            inner = looking_ahead(policy._inner)
            return None if inner is None else GuardAhead(policy, inner)
    return None


def _hybrid(policy: Hybrid) -> HybridAhead | None:
    """The slow parent sees every look, and is asked at few."""
    fast, slow = looking_ahead(policy._fast), policy._slow
    if fast is None or not (slow is None or isinstance(slow, StreamSwitch)):
        return None
    return HybridAhead(policy, fast, None if slow is None else StreamSwitchAhead(slow))
