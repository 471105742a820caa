"""One seed: a drawn topology under drawn faults, run by the real `penstock run`, and what came of it.

The input is paced while faults strike; then the run is stopped, and the rest is read at full speed. Whatever
happens, no process of the seed is left when `play` returns. Neighbours: `topology` and `plan` draw, `strikes`
hits, `oracle`, `gaps` and `leftovers` judge.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults import leftovers, store_view
from faults import topology as topologies
from faults.clock import WallClock
from faults.gaps import Gap, flow, longest
from faults.logged_run import LoggedRun
from faults.oracle import Verdict, judge
from faults.plan import Blow, Phase, Plan, Round
from faults.process_tree import SCENE, Found, Role, end_all, look, memory_bytes, pids
from faults.sink_watch import SinkWatch, Stream
from faults.store_view import View
from faults.strikes import Struck, strike
from faults.topology import Topology
from penstock.errors import PenstockError

FULL_SPEED = 1_000_000.0
_LOOK_S = 0.05
_FIRST_ROWS_S = 120.0
_STREAMS_SETTLE_S = 2.0
"""No further stream within this time: all are there."""
_RECOVERED_S = 90.0
"""A pause that is longer is no pause: the topology stands."""
_AFTER_RESTART_S = 150.0
_STOP_S = 60.0
_DRAIN_S = 240.0
_LOOSE_PROCESSES_S = 30.0
_SETTLED_S = 3.0
_TOLD_S = 30.0
"""By then every task has told its ready list, however busy the machine is."""
_SHOWN = 4


class OutOfTimeError(Exception):
    """The seed's time is over."""


@dataclass
class Outcome:
    """What came of one seed. `troubles` are runs that ended wrongly or stood still."""

    topology: Topology
    struck: list[Struck] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    began_s: float = 0.0
    seconds: float = 0.0
    load: float = 0.0
    """The machine's, at the end: bounds of pauses are for one that has nothing else to do."""

    def faults(self, slack: float = 1.0) -> list[str]:
        """All that is not as it must be; bounds of gaps are multiplied by `slack`."""
        wrong = [] if self.verdict.is_clean else [f"rows: {self.verdict.words()}", *self.verdict.examples]
        above = [f"gap: {fault}" for gap in self.gaps for fault in gap.faults(slack)]
        return [*wrong, *self.troubles, *self.left, *above]


class Scene:
    """`folder` is empty, and the seed's own. `say` gets a line for each blow."""

    def __init__(
        self, topology: Topology, plan: Plan, folder: Path, limit_s: float, say: Callable[[str], None]
    ) -> None:
        self._topology = topology
        self._plan = plan
        self._folder = folder
        self._say = say
        self._chance = random.Random(f"victims {topology.seed}")
        self._clock = WallClock(folder) if plan.steps_clock else None
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        manifest = topologies.write(topology, folder)
        env = {SCENE: str(folder), "TMPDIR": str(self._temporary)}
        if self._clock is not None:
            env |= self._clock.env
        self._run = LoggedRun(manifest, folder / "state", env=env)
        self._watch = SinkWatch(folder / "out")
        self._view = store_view.NOTHING
        self._memory: tuple[int, leftovers.Memory] | None = None
        self._out = Outcome(topology)
        self._out.began_s = time.monotonic()
        self._limit_s = self._out.began_s + limit_s

    def play(self) -> Outcome:
        out = self._out
        try:
            with self._watch:
                self._strike_all()
                self._drain()
            out.left += leftovers.processes(self._wait_gone(5.0), "the end")
            out.left += leftovers.files(self._folder / "state", self._temporary)
            out.left += leftovers.keys(self._folder / "state", self._topology.durability)
        except OutOfTimeError:
            self._trouble("was given no more time")
        except PenstockError as error:
            self._trouble(f"left a store that cannot be looked at: {error}")
        finally:
            end_all(self._folder)
            if self._run.process is not None:
                self._run.process.wait()
            if self._clock is not None:
                self._clock.close()
            out.seconds = time.monotonic() - out.began_s
            out.load = os.getloadavg()[0]
        out.verdict = judge(self._topology, self._folder)
        return out

    # --- the faults ---------------------------------------------------------------------------------

    def _strike_all(self) -> None:
        self._run.start()
        for one in self._plan.rounds:
            if one.blows[0].phase is Phase.FLOWING and not self._await_flow(_FIRST_ROWS_S):
                break
            if self._view.finished:  # the machine is slow: fewer faults for this input
                break
            if not self._play_round(one):
                break
        else:
            if self._await_flow(_AFTER_RESTART_S):
                self._look_for_leftovers()
        self._stop(signal.SIGTERM)

    def _play_round(self, one: Round) -> bool:
        """False when the topology stands still for good."""
        has_flown = bool(self._watch.span_s())
        before = self._view
        begin_s: float | None = None
        for blow in one.blows:
            if blow.phase is Phase.STARTING:
                self._await_role(blow.kind.role)
            time.sleep(blow.after_s)
            if self._run.has_finished():
                return False
            if self._ended_by_itself():
                self._run.start()
            struck = self._strike(blow)
            begin_s = struck.at_s if begin_s is None else begin_s
            if blow.kind.ends_run and struck.existed:
                self._restart(loose=blow.kind.and_sentinel)
        assert begin_s is not None
        if not self._await_flow(_AFTER_RESTART_S if one.ends_run else _RECOVERED_S, one.name):
            return False
        if (
            has_flown
            and not self._view.finished
            and any(s.existed for s in self._out.struck[-len(one.blows) :])
        ):
            self._out.gaps.append(self._gap(one, before, begin_s))
        return True

    def _await_role(self, role: Role | None) -> None:
        """Until a process of this role has come up, or all have."""
        end_s = time.monotonic() + _FIRST_ROWS_S
        while time.monotonic() < end_s and self._run.ended() is None and not self._watch.span_s():
            if role in (Role.TASK, Role.STANDBY):  # forks of one kind: tasks tell that they are
                self._view = store_view.view(self._run, self._topology)
            if role is None or any(found.role is role for found in self._tree()):
                return
            self._tick()

    def _strike(self, blow: Blow) -> Struck:
        struck = strike(blow, self._tree, self._chance, self._clock)
        self._out.struck.append(struck)
        self._say(struck.words(self._out.began_s))
        return struck

    def _gap(self, one: Round, before: View, begin_s: float) -> Gap:
        now_s = time.monotonic()
        grew_s = self._watch.grew_s()
        flowing = {stream for stream, moments in grew_s.items() if moments[0] < begin_s}
        hit = {found.worker for found in self._out.struck[-1].hit} - {""} if len(one.blows) == 1 else set()
        others = self._streams_of_others(hit, before) & flowing if hit else set()
        seconds, stream = longest(grew_s, flowing - others, begin_s, now_s)
        others_s, others_stream = longest(grew_s, others, begin_s, now_s)
        return Gap(
            one.name,
            self._topology.workers,
            self._topology.seed,
            seconds,
            one.bound_s,
            stream,
            others_s if others else None,
            others_stream,
            self._watch.late_s(begin_s, now_s),
        )

    def _streams_of_others(self, hit: set[str], view: View) -> set[Stream]:
        """Streams that workers which were not hit have for themselves: partition and shard are theirs, with
        no stage between the two."""
        found = set()
        for stage in self._topology.keyed:
            sources = {source.name for source in self._topology.sources_of(stage)}
            if len(sources) < len(stage.inputs):
                continue
            for stream in self._watch.span_s():
                name, _, number = stream.partition.partition(".")
                partition = self._topology.shards().get(name, ())
                if stream.stage == stage.name and name in sources:
                    ways = {
                        view.owners.get(partition[int(number)]),
                        view.owners.get(f"{stage.name}/{stream.part}"),
                    }
                    if None not in ways and not ways & hit:
                        found.add(stream)
        return found

    # --- the run ------------------------------------------------------------------------------------

    def _restart(self, *, loose: bool) -> None:
        """After a blow at the command itself; `loose`: with nobody left to end its processes."""
        process = self._run.process
        assert process is not None
        try:
            code = process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._trouble(f"did not end within {_STOP_S:.0f} s")
            process.kill()
            code = process.wait()
        if code not in (0, -signal.SIGKILL):
            self._trouble(f"ended with code {code}")
        if loose or self._chance.random() < 0.5:
            left = self._wait_gone(_LOOSE_PROCESSES_S)
            self._out.left += leftovers.processes(
                left, f"{_LOOSE_PROCESSES_S:.0f} s without run and sentinel"
            )
            end_all(self._folder)
        self._run.start()

    def _stop(self, number: signal.Signals) -> None:
        if self._run.ended() is None:
            self._run.process.send_signal(number)  # type: ignore[union-attr]
        self._wait_end(_STOP_S)

    def _wait_end(self, seconds: float) -> bool:
        """Until the run has ended, which is to be in order; False when it does not, or stands still."""
        process = self._run.process
        assert process is not None
        begun_s = time.monotonic()
        while (code := process.poll()) is None:
            self._tick()
            now_s = time.monotonic()
            grown_s = max((last_s for _, last_s in self._watch.span_s().values()), default=begun_s)
            still_s = now_s - max(begun_s, grown_s)
            if now_s - begun_s > seconds or still_s > _AFTER_RESTART_S:
                told = f"does not end: no row for {still_s:.0f} s, {now_s - begun_s:.0f} s in all"
                self._trouble(told)
                end_all(self._folder)
                process.wait()
                return False
        if code:
            self._trouble(f"ended with code {code}")
        return code == 0

    def _trouble(self, what: str) -> None:
        self._out.troubles.append(f"the run {what}\n{self._run.tail()}")

    def _drain(self) -> None:
        """Read what is left at full speed, with a last blow in the midst of it. What does not end is tried
        once more without, so that what is still missing then is really lost."""
        end_all(self._folder)
        self._run.arguments = tuple(topologies.rates(self._topology, FULL_SPEED))
        self._run.start()
        if self._plan.last is not None:
            self._strike_draining(self._plan.last)
        if not self._wait_end(_DRAIN_S):
            self._run.start()
            self._wait_end(_DRAIN_S)

    def _strike_draining(self, last: Blow) -> None:
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + _FIRST_ROWS_S and self._run.ended() is None:
            if any(last_s > begun_s for _, last_s in self._watch.span_s().values()):
                break
            self._tick()
        time.sleep(last.after_s)
        self._view = store_view.view(self._run, self._topology)
        if self._run.ended() is None:
            struck = self._strike(last)
            if last.kind.ends_run and struck.existed:
                self._restart(loose=last.kind.and_sentinel)

    def _ended_by_itself(self) -> bool:
        code = self._run.ended()
        if code is None:
            return False
        self._trouble(f"ended by itself with code {code}")
        return True

    # --- looking ------------------------------------------------------------------------------------

    def _tree(self) -> list[Found]:
        return look(self._folder, self._run.pid, self._view.tasks)

    def _tick(self) -> None:
        if time.monotonic() > self._limit_s:
            raise OutOfTimeError
        time.sleep(_LOOK_S)

    def _await_flow(self, seconds: float, after: str = "") -> bool:
        """Until rows of every stream come again and no new streams do; False when that does not happen, or
        the run is over. What the store says is looked at anew then."""
        begun_s = time.monotonic()
        while True:
            self._tick()
            now_s = time.monotonic()
            grew_s = self._watch.span_s()
            newest_s = max((first_s for first_s, _ in grew_s.values()), default=now_s)
            sinks = {stream.sink for stream in grew_s}
            if (
                len(sinks) == len(self._topology.sinks)
                and now_s - max(begun_s, newest_s) > _STREAMS_SETTLE_S
                and flow([last_s for _, last_s in grew_s.values()], begun_s, now_s)
            ):
                break
            if self._run.ended() is not None:
                if self._finished():
                    return False
                self._ended_by_itself()
                self._run.start()
                begun_s = now_s
            if now_s - begun_s > seconds:
                if self._finished():
                    break
                still = sorted(
                    one.words() for one, (_, at_s) in grew_s.items() if not flow([at_s], begun_s, now_s)
                )
                told = f"stands still {seconds:.0f} s after {after or 'its start'}"
                self._trouble(f"{told}: {' '.join(still[:_SHOWN]) or 'no rows'}")
                return False
        self._view = store_view.view(self._run, self._topology)
        if self._memory is None or self._memory[0] != self._run.pid:
            self._memory = (self._run.pid, self._used())
        return True

    def _finished(self) -> bool:
        return self._run.has_finished() or store_view.view(self._run, self._topology).finished

    def _used(self) -> leftovers.Memory:
        return leftovers.Memory(memory_bytes(self._run.pid), store_view.used_memory_bytes(self._run))

    def _look_for_leftovers(self) -> None:
        """While the run goes on: memory, and ready lists of tasks that are dead."""
        time.sleep(_SETTLED_S)
        if self._memory is not None and self._memory[0] == self._run.pid:
            self._out.left += self._memory[1].growth(self._used())
        end_s = time.monotonic() + _TOLD_S
        while (left := self._lists_of_nobody()) and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
        self._out.left += [f"keys: ready list {name} of a task that is dead" for name in left]

    def _lists_of_nobody(self) -> list[str]:
        """Ready lists that no living task has told."""
        self._view = store_view.view(self._run, self._topology)
        living = pids(self._folder)
        ready = {name for pid, name in self._view.ready.items() if pid in living}
        return [name for name in store_view.ready_lists(self._run) if name not in ready]

    def _wait_gone(self, seconds: float) -> list[Found]:
        """The processes that are still there after `seconds`."""
        end_s = time.monotonic() + seconds
        while pids(self._folder) and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
        return self._tree()
