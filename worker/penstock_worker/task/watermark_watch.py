"""How a task that goes by event time hears of its stage's watermark.

While there is something to do, or watermarks move, it looks every `WATERMARK_LOOK_US`. Once nothing has come
for a few looks it has the store ring its ready list at the next news (`penstock.store.port.Listen`), and asks
for nothing until then: the look that every wait ends with, after half a second, finds what no store can ring
for. Neighbour: `task.loop` tells of what came and carries the call out.
"""

from __future__ import annotations

from penstock.dataflow.plan import Processor
from penstock.store.port import Fetched, Listen, Watermark
from penstock_worker.process.clock import Clock
from penstock_worker.task.launch import TaskLaunch

WATERMARK_LOOK_US = 20_000
"""How soon a change of the watermark is seen while looked for."""
CALM_US = 3 * WATERMARK_LOOK_US
"""Nothing has come for so long: by then all shards that were behind have been looked at again."""


class WatermarkWatch:
    """One per task; of one that does not go by event time it is nothing."""

    def __init__(self, launch: TaskLaunch, clock: Clock) -> None:
        head = launch.stage.head
        self._clock = clock
        self._ready = launch.owner.ready
        self._producers = head.producers if isinstance(head, Processor) else ()
        self._keyed = head.keyed_producers if isinstance(head, Processor) else ()
        self._heard = Watermark(None)
        self._calm_at_us = 0
        self._is_listening = False

    def look_on(self) -> None:
        """Something came, or was worked on."""
        if self._producers:
            self._is_listening = False
            self._calm_at_us = self._clock.monotonic_us() + CALM_US

    def fetched(self, fetched: Fetched) -> None:
        """A fetch told how far the stage is. One that took the ring off the list has heard it for the task,
        whose wait may have ended before."""
        watermark = self._heard if fetched.watermark is None else fetched.watermark
        if fetched.rung or watermark != self._heard:
            self._heard = watermark
            self.look_on()

    def due(self) -> Listen | None:
        """What to ask of the store before the task waits."""
        if not self._producers or self._is_listening or self._clock.monotonic_us() < self._calm_at_us:
            return None
        return Listen(self._ready, self._heard, self._producers, self._keyed)

    def answered(self, *, is_listening: bool) -> None:
        """Where the store does not listen there is news, or it cannot."""
        if is_listening:
            self._is_listening = True
        else:
            self.look_on()

    def wait_us(self, most_us: int) -> int:
        """How long to wait for something on the ready list."""
        if not self._producers or self._is_listening:
            return most_us
        return min(most_us, WATERMARK_LOOK_US)
