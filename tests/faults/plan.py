"""Which faults strike in which order and phase, drawn from a seed; what each may cost. Pure.

Faults come in rounds. A round strikes while rows flow, or while the run starts; its further blows fall while
the first one is being mended. Neighbours: `strikes` carries a blow out, `gaps` measures what a round cost.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from faults.process_tree import Role

TASK_OR_STORE_S = 1.0
WORKER_S = 12.0
STANDING_TASK_S = 5.0
NOTHING_S = 1.0
"""For what no row has to wait for."""


class Phase(StrEnum):
    FLOWING = "flowing"
    STARTING = "starting"
    RECOVERING = "recovering"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault. `bound_s` is what the issue of it allows one file to pause; None: it has to end."""

    name: str
    role: Role | None
    number: signal.Signals | None = None
    hold_s: tuple[float, float] = (0.0, 0.0)
    """A process that is stopped stands for so long."""
    bound_s: float | None = None
    weight: int = 2
    ends_run: bool = False
    and_sentinel: bool = False
    again_s: tuple[float, float] | None = None
    """The same once more after so long."""
    steps_s: tuple[float, ...] = ()
    """The wall clock is stepped by one of them."""


_KILL, _TERM, _STOP, _INT = signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGINT

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("task killed", Role.TASK, _KILL, bound_s=TASK_OR_STORE_S, weight=4),
        Kind("task terminated", Role.TASK, _TERM, bound_s=TASK_OR_STORE_S),
        Kind("task stands", Role.TASK, _STOP, (8.0, 20.0), STANDING_TASK_S, weight=3),
        Kind("standby killed", Role.STANDBY, _KILL, bound_s=NOTHING_S, weight=1),
        Kind("daemon killed", Role.DAEMON, _KILL, bound_s=WORKER_S),
        Kind("daemon stands", Role.DAEMON, _STOP, (3.0, 8.0), weight=1),
        Kind("JVM killed", Role.JVM, _KILL, bound_s=WORKER_S, weight=3),
        Kind("JVM terminated", Role.JVM, _TERM, bound_s=WORKER_S, weight=1),
        Kind("JVM stands", Role.JVM, _STOP, (3.0, 8.0), weight=1),
        Kind("worker killed", Role.WORKER, _KILL, bound_s=WORKER_S, weight=3),
        Kind("worker terminated", Role.WORKER, _TERM, bound_s=WORKER_S, weight=1),
        Kind("worker stands", Role.WORKER, _STOP, (3.0, 8.0), weight=1),
        Kind("store killed", Role.STORE, _KILL, bound_s=TASK_OR_STORE_S, weight=3),
        Kind("store killed twice", Role.STORE, _KILL, again_s=(0.02, 0.5)),
        Kind("store terminated", Role.STORE, _TERM, weight=1),
        Kind("store stands", Role.STORE, _STOP, (1.0, 5.0), weight=2),
        Kind("sentinel killed", Role.SENTINEL, _KILL, bound_s=NOTHING_S, weight=1),
        Kind("run stands", Role.RUN, _STOP, (2.0, 6.0), NOTHING_S, weight=1),
        Kind("run terminated", Role.RUN, _TERM, ends_run=True, weight=1),
        Kind("run interrupted", Role.RUN, _INT, ends_run=True, weight=1),
        Kind("run killed", Role.RUN, _KILL, ends_run=True, weight=2),
        Kind("run and sentinel killed", Role.RUN, _KILL, ends_run=True, and_sentinel=True, weight=1),
        Kind("clock ahead", None, bound_s=NOTHING_S, steps_s=(2, 60, 3600)),
        Kind("clock back", None, bound_s=NOTHING_S, steps_s=(-2, -60, -3600)),
    )
}


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault: `after_s` after rows flow, who is to be hit came up, or the blow before."""

    kind: Kind
    phase: Phase
    after_s: float
    hold_s: float = 0.0
    again_s: float | None = None
    step_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """Blows that belong together; what they cost is measured as one."""

    blows: tuple[Blow, ...]

    @property
    def name(self) -> str:
        first = self.blows[0]
        if len(self.blows) > 1:
            return "several"
        return first.kind.name if first.phase is Phase.FLOWING else f"{first.kind.name} ({first.phase})"

    @property
    def bound_s(self) -> float | None:
        first = self.blows[0]
        is_plain = len(self.blows) == 1 and first.phase is Phase.FLOWING
        return first.kind.bound_s if is_plain else None

    @property
    def ends_run(self) -> bool:
        return any(blow.kind.ends_run for blow in self.blows)

    @property
    def hold_s(self) -> float:
        return sum(blow.hold_s for blow in self.blows)


@dataclass(frozen=True, slots=True)
class Plan:
    """`last` strikes while the rest of the input is read at full speed."""

    rounds: tuple[Round, ...]
    last: Blow | None

    @property
    def steps_clock(self) -> bool:
        return any(blow.kind.steps_s for one in self.rounds for blow in one.blows)


def draw(seed: int, rounds: int, kinds: Collection[str] | None = None) -> Plan:
    """The faults of `seed`; `kinds` leaves some out."""
    chance = random.Random(f"faults {seed}")
    pool = [kind for name, kind in KINDS.items() if kinds is None or name in kinds]
    drawn = []
    for number in range(rounds):
        phase = Phase.STARTING if number == 0 and chance.random() < 0.3 else Phase.FLOWING
        blows = [_blow(chance, pool, phase)]
        while chance.random() < 0.25 and len(blows) < 3:
            blows.append(_blow(chance, pool, Phase.RECOVERING))
        drawn.append(Round(tuple(blows)))
    quick = [kind for kind in pool if not kind.hold_s[1] and not kind.steps_s]
    last = _blow(chance, quick, Phase.DRAINING) if quick and chance.random() < 0.5 else None
    return Plan(tuple(drawn), last)


def _blow(chance: random.Random, pool: Sequence[Kind], phase: Phase) -> Blow:
    (kind,) = chance.choices(pool, [kind.weight for kind in pool])
    after_s = {
        Phase.FLOWING: chance.uniform(0.1, 1.5),
        Phase.STARTING: chance.uniform(0.0, 3.0),
        Phase.RECOVERING: chance.uniform(0.05, 2.5),
        Phase.DRAINING: chance.uniform(0.1, 2.0),
    }[phase]
    return Blow(
        kind,
        phase,
        after_s,
        hold_s=chance.uniform(*kind.hold_s) if kind.hold_s[1] else 0.0,
        again_s=chance.uniform(*kind.again_s) if kind.again_s else None,
        step_s=chance.choice(kind.steps_s) if kind.steps_s else 0.0,
    )
