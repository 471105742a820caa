"""The operator's loops: for each Topology one, and one for the node stores. Level-based.

A turn looks at everything (mirror and stores), asks the pure decision, and carries it out. It runs when
something that it looks at has changed, when the decision said so, and every few seconds anyway; nothing rests
on an event. Each loop is a task of its own, so that one whose stores hang holds up no other. What a turn
learned is in `Work`; it may be lost at any time. Neighbours: `mirror` wakes, `turns` has what each loop does
in a turn, `health` watches the watchman.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError, RetryError, SkipTickError
from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.carrying_out.topology_schedules import TopologySchedules
from penstock_operator.cluster.carrying_out.topology_status import StatusWriter
from penstock_operator.cluster.kubernetes_api.lease import LeaseLost
from penstock_operator.cluster.kubernetes_api.mirror import WATCHED, Mirror
from penstock_operator.cluster.kubernetes_api.names import label_value
from penstock_operator.cluster.kubernetes_api.port import (
    CONFIG_MAPS,
    LATENCY_SLAS,
    NODES,
    SCHEDULES,
    STATEFUL_SETS,
    TOPOLOGIES,
    ClusterApi,
    Kind,
    Object,
    name_of,
    uid_of,
)
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture, code_map
from penstock_operator.cluster.observing.core_budget import CoreBudget
from penstock_operator.cluster.observing.observe import is_store, node_named, topology_label
from penstock_operator.cluster.observing.observed import SlaControl
from penstock_operator.cluster.observing.workers_seen import workers_seen
from penstock_operator.cluster.sla.keeper import SlaKeeper
from penstock_operator.cluster.sla.objects import topology_of
from penstock_operator.cluster.turns.passwords_turn import PasswordsTurns, StoreLogins
from penstock_operator.cluster.turns.rest import LOOKS_EVERY_S_MAX
from penstock_operator.cluster.turns.stores_turn import StoresTurns
from penstock_operator.cluster.turns.topology_for_slas import TopologyForSlas
from penstock_operator.cluster.turns.topology_turn import TopologyTurns
from penstock_operator.cluster.turns.turn_slots import TurnSlots
from penstock_operator.cluster.turns.work import Clocks, Leadership, Readers, Work

_LOG = logging.getLogger(__name__)

STALLED_S = 60.0
"""A loop without the end of a turn for so long does not work."""
_GAP_S = 0.02
"""Between two turns of a loop: what changes together is looked at together."""
_STORES_GAP_S = 0.5
"""Of the node stores' loop, which every Schedule wakes."""
_TOPOLOGY_TURNS_AT_ONCE = 4
"""They share one core: more of them would only make each one longer."""
_LOOK_S_MAX = 5.0
_RELIST_S = 60.0
_BACKOFF_S_MIN = 0.5
_BACKOFF_S_MAX = 15.0
_STORES = "stores"
_TOPOLOGY = "topology"
_SLA = "sla"


class Reconciler:
    """Runs until cancelled, or until a write says that this process leads no more (LeaseLost)."""

    def __init__(
        self,
        cluster: ClusterApi,
        readers: Readers,
        config: OperatorConfig,
        leadership: Leadership,
        clocks: Clocks,
        metrics: OperatorMetrics,
        logins: StoreLogins,
    ) -> None:
        self._cluster = cluster
        self._readers = readers
        self._config = config
        self._leadership = leadership
        self._clocks = clocks
        self._ahead_s = clocks.wall_s() - clocks.monotonic_s()
        self._metrics = metrics
        self.mirror = Mirror(self._changed)
        self._budget = CoreBudget(config.cores_max, self.mirror)
        self._picture = ClusterPicture(cluster, self.mirror, config)
        self._applier = Applier(cluster, self.mirror, leadership.term, metrics)
        self._topologies: dict[str, Work] = {}
        self._of_label: dict[str, str] = {}
        """A label's value -> the Topology that it means."""
        self._slas: dict[str, Work] = {}
        """By the name of the topology that they are about, be it there or not."""
        self._stores = self._new_work()
        self._names_changed = asyncio.Event()
        self._slots = TurnSlots(_TOPOLOGY_TURNS_AT_ONCE)
        metrics.counts_topologies(self.phases, self.resting)
        passwords = PasswordsTurns(
            cluster,
            config,
            logins,
            leadership,
            clocks,
            lambda: workers_seen(self.mirror, config.store.auth_secret),
        )
        self._stores_turns = StoresTurns(
            cluster,
            self.mirror,
            self._picture,
            self._applier,
            config,
            leadership,
            clocks,
            passwords,
            wake_topologies=self._wake_all,
        )
        self._topology_turns = TopologyTurns(
            cluster,
            self.mirror,
            self._picture,
            readers.stores,
            readers.kept,
            self._applier,
            config,
            leadership,
            clocks,
            metrics,
            self._topologies,
            passwords,
            control=self._sla_control,
            renewing=lambda: self._stores_turns.renewing,
            lost=lambda: self._stores_turns.lost,
            wake_all=self._wake_all,
        )

    async def run(self) -> None:
        """Raises LeaseLost, PermanentError when the cluster cannot be looked at (in an ExceptionGroup)."""
        await self._first_list()
        # Before any store is read; what is wrong with it is told by the loop of the stores.
        await self._stores_turns.look_at_passwords()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._relist_forever())
            group.create_task(self._picture.foreign_forever())
            self._stores.task = group.create_task(self._loop(_STORES, "node stores", self._stores))
            while True:
                self._names_changed.clear()
                self._start_and_end_loops(group)
                await self._names_changed.wait()

    def stalled(self) -> str:
        """Which loop does not come to the end of its turn, in a sentence; "" when all do."""
        now_s = self._clocks.monotonic_s()
        loops = {"the node stores": self._stores, **{f"topology {k}": v for k, v in self._topologies.items()}}
        loops |= {f"the SLAs of topology {name}": work for name, work in self._slas.items()}
        for what, work in loops.items():
            if not work.is_queued and now_s - work.turned_s > STALLED_S:
                return f"the loop of {what} has not ended a turn for {now_s - work.turned_s:.0f} s"
        return ""

    def phases(self) -> list[str]:
        """Of all Topologies, as they were last decided for."""
        return [one.phase for one in self._topologies.values()]

    def resting(self) -> int:
        """How many Topologies the last decision left nothing to do for."""
        return sum(work.rest is not None for work in self._topologies.values())

    # --- loops

    async def _first_list(self) -> None:
        while not self.mirror.is_complete():
            try:
                await self._relist()
            except RetryError as error:
                _LOG.warning("objects could not be listed: %s", error)
                await asyncio.sleep(_BACKOFF_S_MIN)

    async def _relist(self) -> None:
        for kind in WATCHED:
            keep = partial(self.mirror.kept, kind)
            self.mirror.relisted(kind, await self._cluster.list(kind, keep=keep))

    async def _relist_forever(self) -> None:
        """What a watch lost is found here."""
        while True:
            await asyncio.sleep(_RELIST_S)
            try:
                await self._relist()
            except (RetryError, SkipTickError) as error:
                _LOG.warning("objects could not be listed: %s", error)
            except PermanentError as error:
                _LOG.error("objects cannot be listed: %s", error)

    def _start_and_end_loops(self, group: asyncio.TaskGroup) -> None:
        there = {name_of(one) for one in self.mirror.all(TOPOLOGIES)}
        self._of_label = {label_value(name): name for name in there}
        for name in there - self._topologies.keys():
            work = self._topologies[name] = self._new_work()
            work.task = group.create_task(self._loop(_TOPOLOGY, name, work))
        for name in self._topologies.keys() - there:
            self._topologies.pop(name).end()
            self._metrics.held_by_quota(name, is_held=False)
            self._wake_all()  # there may be room now
        uids = self._picture.topology_uids() | {uid_of(one) for one in self.mirror.all(TOPOLOGIES)}
        for reader in (self._readers.stores, self._readers.samples):
            reader.keep_only({store.address for store in self._picture.stores()}, uids)
        self._start_and_end_sla_loops(group)

    def _start_and_end_sla_loops(self, group: asyncio.TaskGroup) -> None:
        named = {topology_of(one) for one in self.mirror.all(LATENCY_SLAS)}
        for name in named - self._slas.keys():
            work = self._slas[name] = self._new_work()
            work.keeper = self._new_keeper(name)
            work.task = group.create_task(self._loop(_SLA, name, work))
        for name in self._slas.keys() - named:
            self._slas.pop(name).end()
            self._metrics.slas.forget_topology(name)
            self._wake(name)

    async def _loop(self, loop: str, name: str, work: Work) -> None:
        """Turn after turn. Only LeaseLost ends it."""
        failures = 0
        while True:
            async with self._slot(loop, work):
                work.wake.clear()
                woken_s, work.woken_s = work.woken_s, None
                began_s = self._clocks.monotonic_s()
                try:
                    look_s = await self._one_turn(loop, name, work)
                    failures = 0
                except LeaseLost:
                    raise
                except Exception as error:  # noqa: BLE001 - the edge of a turn: a bug in one must not end the others
                    failures += 1
                    look_s = min(_BACKOFF_S_MIN * 2 ** (failures - 1), _BACKOFF_S_MAX)
                    self._tell(loop, name, error, failures)
                work.turned_s = self._clocks.monotonic_s()
            self._metrics.turned(loop, work.turned_s - began_s)
            if woken_s is not None:
                self._metrics.taken_up(loop, work.turned_s - woken_s)
            if loop == _SLA and not failures:
                # What an interval is measured from is its begin.
                look_s = max(0.0, look_s - _GAP_S - (work.turned_s - began_s))
            gap_s = _STORES_GAP_S if loop == _STORES else _GAP_S
            await asyncio.sleep(look_s if failures else gap_s)
            # Not wait_for: before Python 3.12 it forgets a cancellation that comes as it is woken.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(look_s, LOOKS_EVERY_S_MAX if work.rest else _LOOK_S_MAX)):
                    await work.wake.wait()

    @contextlib.asynccontextmanager
    async def _slot(self, loop: str, work: Work) -> AsyncIterator[None]:
        """What a turn needs to begin. Who waits for it is not stalled."""
        if loop != _TOPOLOGY:
            yield
            return
        work.is_queued = True
        try:
            async with self._slots.one(lambda: work.woken_s is not None):
                work.is_queued = False
                work.turned_s = self._clocks.monotonic_s()
                yield
        finally:
            work.is_queued = False

    async def _one_turn(self, loop: str, name: str, work: Work) -> float:
        if loop == _STORES:
            return await self._stores_turns.turn()
        if work.keeper is not None:
            return await work.keeper.turn()
        return await self._topology_turns.turn(name, work)

    def _tell(self, loop: str, name: str, error: Exception, failures: int) -> None:
        kinds = ((RetryError, "retry"), (PermanentError, "permanent"), (SkipTickError, "skip"))
        kind = next((word for type_, word in kinds if isinstance(error, type_)), "bug")
        self._metrics.erred(loop, kind)
        if kind == "bug":
            _LOG.error("%s: a bug ended the turn", name, exc_info=error)
        elif failures & (failures - 1) == 0:  # the 1st, 2nd, 4th, ... in a row
            _LOG.warning("%s: the turn ended: %s", name, error)

    # --- latency SLAs

    def _new_keeper(self, name: str) -> SlaKeeper:
        return SlaKeeper(
            TopologyForSlas(
                name,
                self._topologies,
                self._picture,
                self.mirror,
                self._clocks.monotonic_s,
                self._metrics,
            ),
            self._readers.samples,
            TopologySchedules(
                self._applier,
                lambda: self._picture.schedules_of(name),
                self._config.namespace,
                self._leadership.term,
            ),
            self._budget,
            lambda: StatusWriter(
                self._cluster,
                self._clocks.monotonic_s,
                lambda: self._now_us() / 1e6,
                self._leadership.reporter,
                LATENCY_SLAS,
            ),
            self._now_us,
        )

    def _sla_control(self, topology: str) -> SlaControl:
        work = self._slas.get(topology)
        return work.keeper.control if work is not None and work.keeper is not None else SlaControl()

    def _now_us(self) -> int:
        """As the wall clock was at first: who sets it starts and ends nothing."""
        return int((self._ahead_s + self._clocks.monotonic_s()) * 1e6)

    # --- waking

    def _changed(self, kind: Kind, thing: Object) -> None:
        """Something that decisions look at is another one."""
        if kind == TOPOLOGIES:
            name = name_of(thing)
            self._wake(name)
            if (name in self._topologies) != (self.mirror.get(TOPOLOGIES, name) is not None):
                self._names_changed.set()
        elif kind == LATENCY_SLAS:
            self._names_changed.set()
            work = self._slas.get(topology_of(thing))
            if work is not None:
                work.wake_up(self._came_s())
        elif kind == SCHEDULES:
            self._wake(str(thing["spec"].get("topology")))
            self._stores.wake_up(self._came_s())
        elif kind == NODES:
            self._stores.wake_up(self._came_s())
            self._wake_on(name_of(thing))
        elif kind == STATEFUL_SETS or is_store(thing):
            self._stores.wake_up(self._came_s())
            self._wake_on(node_named(thing))
        else:
            self._wake(self._of_label.get(topology_label(thing), ""))
            if kind == CONFIG_MAPS:
                for work in self._topologies.values():
                    if code_map(work.look) == name_of(thing):
                        work.wake_up(self._came_s())

    def _wake_on(self, node: str) -> None:
        """Who is on the node, and who wants anything: others have nothing to do with it. `node` may be a
        label's value."""
        for work in self._topologies.values():
            if work.rest is None or any(node in (one, label_value(one)) for one in work.rest.nodes):
                work.wake_up(self._came_s())

    def _wake(self, topology: str) -> None:
        work = self._topologies.get(topology)
        if work is not None:
            work.wake_up(self._came_s())

    def _wake_all(self) -> None:
        for work in self._topologies.values():
            work.wake_up(self._came_s())

    def _came_s(self) -> float:
        """When the change came in that is being handed on."""
        arrived_s = self.mirror.arrived_s
        return self._clocks.monotonic_s() if arrived_s is None else arrived_s

    def _new_work(self) -> Work:
        return Work(asyncio.Event(), self._clocks.monotonic_s())
