"""When a Spark worker that stands beside a worker leaves: it runs remote tasks of one start of that worker.

Pure. Neighbours: `control.elasticutor.remote_tasks` says which are remote, each runtime makes who runs
them; a cluster has reasons of its own besides (nodes that do not take a pod).
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.supervision.since_when import SinceWhen

LINGER_S = 20.0
"""One without tasks stays for so long: its start takes seconds."""


@dataclass(frozen=True, slots=True)
class Beside:
    """One that is there. `uid` is its own, `home_uid` the start of a worker that it joined; `tasks` are
    wanted there now. `ending` says in words how it has ended."""

    uid: str
    home_uid: str
    tasks: int
    ending: str = ""


def why_it_leaves(beside: Beside, home_uid: str, since: SinceWhen) -> str:
    """In words; "" while it stays. `home_uid` is of its worker's present start, "" when there is none."""
    if beside.home_uid != home_uid:
        return "the worker whose tasks it ran is gone"
    if beside.ending:
        return beside.ending
    if beside.tasks or since.lasts_s(f"unused:{beside.uid}") < LINGER_S:
        return ""
    return "no remote task is wanted there any more"
