"""What a decision leaves to the topology's LatencySLAs: whether they may move things about now, and where.

Pure. Neighbours: `turn` is the look, `sla_leeway` is what comes out.
"""

from __future__ import annotations

from penstock.supervision.settled import held_back
from penstock_operator.cluster.decisions.sla_leeway import SlaLeeway
from penstock_operator.cluster.decisions.turn import Turn
from penstock_operator.cluster.decisions.verdict import away


def leeway_for_slas(turn: Turn) -> SlaLeeway:
    """Read when the turn has its actions."""
    is_at_rest = turn.is_finished or turn.topology.spec.paused
    return SlaLeeway(_held(turn), _busy(turn), tuple(turn.sla_hosts()), _outdated(turn), is_at_rest)


def _held(turn: Turn) -> str:
    if turn.is_finished:
        return "all input is read and worked off"
    if turn.topology.spec.paused:
        return "the topology is paused"
    if len(turn.schedules) < len(turn.plan.stages):
        return turn.found.waits_for or "workers are starting"
    waiting = away(turn)
    return held_back(turn.workers) or (waiting[0] if waiting else "")


def _outdated(turn: Turn) -> str:
    pods = [pod.name for pod in turn.observed.pods if pod.template_hash != turn.template]
    return f"worker {', '.join(sorted(pods))} is of what it was made from before" if pods else ""


def _busy(turn: Turn) -> str:
    if turn.settled.waits and not turn.settled.is_overdue:
        return turn.settled.waits[0]
    if turn.found.treatments:
        return turn.found.treatments[0][1]
    return "schedules are being written" if turn.found.is_changing else ""
