"""Carries a blow out, and says what it really hit. Neighbours: `plan` draws blows, `process_tree` finds
victims."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from faults.clock import WallClock
from faults.plan import Blow, Kind
from faults.process_tree import Found, Role


@dataclass(frozen=True, slots=True)
class Struck:
    """A blow that fell. `hit` is empty when nobody was there; `at_s` is monotonic."""

    blow: Blow
    at_s: float
    hit: tuple[Found, ...]

    @property
    def existed(self) -> bool:
        return bool(self.hit) or self.blow.kind.role is None

    def words(self, began_s: float) -> str:
        kind = self.blow.kind
        at = f"{self.at_s - began_s:6.1f} s  {self.blow.phase:10} {kind.name}"
        if kind.role is None:
            return f"{at} by {self.blow.step_s:+g} s"
        victims = ", ".join(f"{found.words()} (pid {found.pid})" for found in self.hit) or "nobody was there"
        return f"{at}: {victims}" + (f" for {self.blow.hold_s:.1f} s" if self.blow.hold_s else "")


def strike(
    blow: Blow, look: Callable[[], Sequence[Found]], chance: random.Random, clock: WallClock | None
) -> Struck:
    """Hit one process of the role that the blow is for, and let it stand and go on, or step the clock.

    Returns when the blow is over: with a process that was held going on again.
    """
    kind = blow.kind
    if kind.role is None:
        if clock is None:
            raise ValueError("the run was started without a clock that can be stepped")
        at_s = time.monotonic()
        clock.step(blow.step_s)
        return Struck(blow, at_s, ())
    victims = _victims(kind, look(), chance)
    at_s = time.monotonic()
    hit = tuple(found for found in victims if _signal(found, kind))
    if blow.hold_s and hit:
        time.sleep(blow.hold_s)
        for found in hit:
            with suppress(ProcessLookupError):
                os.kill(found.pid, signal.SIGCONT)
    if blow.again_s is not None:
        time.sleep(blow.again_s)
        again = _victims(kind, [found for found in look() if found not in hit], chance)
        hit += tuple(found for found in again if _signal(found, kind))
    return Struck(blow, at_s, hit)


def _victims(kind: Kind, tree: Sequence[Found], chance: random.Random) -> list[Found]:
    candidates = sorted((found for found in tree if found.role is kind.role), key=lambda found: found.pid)
    victims = [chance.choice(candidates)] if candidates else []
    if kind.and_sentinel:
        # First, so that it does not get to its work.
        victims = [found for found in tree if found.role is Role.SENTINEL] + victims
    return victims


def _signal(found: Found, kind: Kind) -> bool:
    """False when it is gone."""
    if kind.number is None:
        raise ValueError(f"{kind.name} sends no signal")
    try:
        os.kill(found.pid, kind.number)
    except ProcessLookupError:
        return False
    return True
