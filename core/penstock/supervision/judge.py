"""Judges a worker: ready, starting, dead or away, from what is seen of it now.

Nothing that is seen missing is dead before a grace is over: the picture may be old. How old pictures get, and
what a start costs, differs between runtimes: `Patience` says it. Pure. Neighbours: `worker` is what comes
out; processes (`penstock run`) and pods (the operator) are what goes in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import WorkerState


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a worker is waited for before others take on what it holds: one that is not to be seen, one
    in its first start, one that had started before."""

    missing_s: float
    first_start_s: float
    again_s: float


PODS = Patience(missing_s=2.0, first_start_s=90.0, again_s=3.0)
"""A list may lag behind. A pod's first start may have to pull its image. A container's restart costs a Spark
start, and others can take over at once."""
PROCESSES = Patience(missing_s=0.0, first_start_s=math.inf, again_s=0.0)
"""Who started a process knows when it ends. Its first start ends by itself, one way or the other."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen of one worker. `uid` is of the start that is there, "" when none is. `is_within_reach`:
    its node and its node's store are there. `has_ended`: it is over, or on its way out. `says_ready`: by its
    probe or in its own words, lately. `is_first_start`: it has not run before."""

    name: str
    uid: str
    is_within_reach: bool
    has_ended: bool
    says_ready: bool
    is_first_start: bool


def judge(sight: Sight, patience: Patience, since: SinceWhen) -> WorkerState:
    """How the worker is."""
    if not sight.is_within_reach:
        return WorkerState.AWAY
    if not sight.uid:
        return _waited(f"missing:{sight.name}", patience.missing_s, since)
    if sight.has_ended:
        return WorkerState.DEAD
    if sight.says_ready:
        return WorkerState.READY
    grace_s = patience.first_start_s if sight.is_first_start else patience.again_s
    return _waited(f"unready:{sight.uid}", grace_s, since)


def _waited(what: str, grace_s: float, since: SinceWhen) -> WorkerState:
    return WorkerState.DEAD if since.lasts_s(what) >= grace_s else WorkerState.STARTING
