"""What a task asks of its ready list next, and until when it may wait before it asks again.

The budget adapts to what user code makes of it (`batch_size`), and to what the store has room for
(`store_pressure`). Where the operator has timers, a fetch tells the time and asks for those that are due, and
its answer says when to ask again. Where it begins with initial state, that is when all of that is in inboxes:
no timer fires before it. Neighbour: `task.loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from penstock.dataflow.plan import Processor
from penstock.store.port import Fetch, Fetched, FetchedShard, ReadWatermark
from penstock_worker.process.clock import Clock
from penstock_worker.stages.initial_gate import LOOK_US, InitialGate
from penstock_worker.task.batch_size import BatchSize, WholeInbox
from penstock_worker.task.launch import TaskLaunch
from penstock_worker.task.store_pressure import StorePressure

CALLS_AFTER_EACH_OTHER = 4
"""For so many calls of async code a batch may be waited for: with fewer most of them would wait by
themselves at its end, with more its first rows would be late."""


class NextFetch:
    """One per task."""

    def __init__(
        self,
        launch: TaskLaunch,
        clock: Clock,
        pressure: StorePressure,
        call: Callable[[ReadWatermark], Any],
    ) -> None:
        head = launch.stage.head
        self.has_timers = isinstance(head, Processor) and head.has_timers
        self._producers = head.producers if isinstance(head, Processor) else ()
        self._keyed = head.keyed_producers if isinstance(head, Processor) else ()
        self._gate: InitialGate | None = None
        if isinstance(head, Processor) and head.initial and self.has_timers and not head.by_event_time:
            # By event time no timer is due before a source behind its own gate has told a watermark.
            self._gate = InitialGate([head.initial.source], call, clock)
        self._ready = launch.owner.ready
        self._clock = clock
        self._pressure = pressure
        takes_all = launch.stage.takes_batches
        self._size: BatchSize | WholeInbox = WholeInbox() if takes_all else BatchSize()
        self._again_ms: int | None = None
        self.has_taken_all = False
        """Whether the last fetch left nothing on the list."""
        self.found_nothing = False
        """Whether it found nothing there, and nothing was heard since: what comes now rings."""

    def call(self, now_us: int) -> Fetch:
        """The next fetch, at this monotonic time."""
        size = self._size
        fetch = Fetch(self._ready, size.bytes, size.shards)
        if self.has_timers and self._begins():
            now_ms = self._clock.now_us() // 1000
            fetch = replace(
                fetch,
                now_ms=now_ms,
                timers_max=size.timers,
                producers=self._producers,
                keyed=self._keyed,
            )
        return self._pressure.fetch(fetch, now_us)

    def _begins(self) -> bool:
        """Whether all initial state is in inboxes, as far as timers wait for that."""
        if self._gate is not None and self._gate.is_open():
            self._gate = None
        return self._gate is None

    def answered(self, fetch: Fetch | None, fetched: Fetched) -> None:
        # A store at its memory limit says nothing of timers: it is asked anew, and at once.
        self._again_ms = 0 if fetched.full and self.has_timers else fetched.next_due_ms
        self.has_taken_all = (
            fetch is not None
            and len(fetched.shards) < fetch.shards_max
            and not fetched.full
            and not any(one.entries for one in fetched.shards)
        )
        self.found_nothing = self.has_taken_all and not fetched.shards
        self._pressure.note(fetch, fetched, self._clock.monotonic_us())

    def at_once(self) -> None:
        """What the last answer said of timers is out of date."""
        self._again_ms = 0 if self.has_timers else None

    def forget(self) -> None:
        """Nothing is owned any more."""
        self._again_ms = None
        self.has_taken_all = self.found_nothing = False

    def wait_us(self, most_us: int, now_us: int) -> int:
        """How long to wait, `most_us` or until the next timer is due; 0 or less for not at all. By event time
        that is not known (`watermark_watch`)."""
        if self._gate is not None:
            most_us = min(most_us, LOOK_US)
        return most_us if self._again_ms is None else min(most_us, self._again_ms * 1000 - now_us)

    def worked(self, work: Sequence[FetchedShard], took_us: int, call_us: int = 0) -> None:
        """What was fetched took so long, from its load to its last post; a call of async code `call_us`."""
        took_us = max(0, took_us - CALLS_AFTER_EACH_OTHER * call_us)
        read_bytes = sum(len(entry.payload) for fetched in work for entry in fetched.entries)
        timers = sum(len(fetched.timers) for fetched in work) if self.has_timers else 0
        self._size.observed(took_us, read_bytes, len(work), timers)
