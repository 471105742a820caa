"""The operator's loops: for each Topology one, in every namespace that is served, and one for the node
stores. Level-based.

A turn looks at everything (mirror and stores), asks the pure decision, and carries it out. It runs when
something that it looks at has changed, when the decision said so, and every few seconds anyway; nothing rests
on an event. Each loop is a task of its own, so that one whose stores hang holds up no other. What a turn
learned is in `Work`; it may be lost at any time. Neighbours: `mirror` wakes, `turns` has what each loop does
in a turn and which loops a namespace has, `health` watches the watchman.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError, RetryError, SkipTickError
from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.kubernetes_api.followed_namespace import FollowedNamespace
from penstock_operator.cluster.kubernetes_api.lease import LeaseLost
from penstock_operator.cluster.kubernetes_api.listing_anew import RELIST_S, list_anew
from penstock_operator.cluster.kubernetes_api.mirror import WATCHED_ELSEWHERE, Mirror
from penstock_operator.cluster.kubernetes_api.names import label_value
from penstock_operator.cluster.kubernetes_api.port import (
    NODES,
    SCHEDULES,
    STATEFUL_SETS,
    ClusterApi,
    Kind,
    Object,
    name_of,
)
from penstock_operator.cluster.kubernetes_api.watches import Watch
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture
from penstock_operator.cluster.observing.core_budget import CoreBudget
from penstock_operator.cluster.observing.namespace_picture import NamespacePicture
from penstock_operator.cluster.observing.observe import is_store, node_named
from penstock_operator.cluster.observing.observed import TopologyKey
from penstock_operator.cluster.observing.workers_seen import WorkerIndex
from penstock_operator.cluster.stores.schedule_index import ScheduleIndex
from penstock_operator.cluster.turns.namespace_loops import SLA, TOPOLOGY, NamespaceLoops, Shared
from penstock_operator.cluster.turns.passwords_turn import PasswordsTurns, StoreLogins
from penstock_operator.cluster.turns.rest import LOOKS_EVERY_S_MAX, PACE_MAX
from penstock_operator.cluster.turns.served_namespace import ServedNamespace
from penstock_operator.cluster.turns.stores_turn import StoresTurns
from penstock_operator.cluster.turns.turn_slots import TurnSlots
from penstock_operator.cluster.turns.work import Clocks, Leadership, Readers, Work
from penstock_operator.cluster.turns.worker_logins import WorkersPlace

_LOG = logging.getLogger(__name__)

STALLED_S = 60.0
"""A loop without the end of a turn for so long does not work."""
_GAP_S = 0.01
"""Between two turns of a loop: what changes together is looked at together."""
_STORES_GAP_S = 0.5
"""Of the node stores' loop, which every Schedule wakes."""
_TOPOLOGY_TURNS_AT_ONCE = 4
"""They share one core: more of them would only make each one longer."""
_LOOK_S_MAX = 5.0
_RESTING_LOOK_S_MAX = LOOKS_EVERY_S_MAX * PACE_MAX
_BACKOFF_S_MIN = 0.5
_BACKOFF_S_MAX = 15.0
_STORES = "stores"


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
        watch: Watch,
    ) -> None:
        """`watch` follows the further namespaces; whoever runs this has the release's `mirror` fed."""
        self._cluster = cluster
        self._readers = readers
        self._clocks = clocks
        self._ahead_s = clocks.wall_s() - clocks.monotonic_s()
        self._metrics = metrics
        mirrors = {config.namespace: Mirror(partial(self._changed, config.namespace))}
        mirrors |= {
            name: Mirror(partial(self._changed, name), WATCHED_ELSEWHERE) for name in config.namespaces
        }
        self.mirror = mirrors[config.namespace]
        self._mirrors = mirrors
        self._picture = ClusterPicture(cluster, mirrors, config)
        self._topologies: dict[TopologyKey, Work] = {}
        self._slas: dict[TopologyKey, Work] = {}
        self._stores = Work(asyncio.Event(), clocks.monotonic_s())
        self._nodes: dict[str, tuple[object, object]] = {}
        """Name -> what was seen of it last, but for its labels: those mean nothing to who rests."""
        self._names_changed = asyncio.Event()
        self._slots = TurnSlots(_TOPOLOGY_TURNS_AT_ONCE)
        metrics.counts_topologies(self.phases, self.resting)
        served = {name: self._serving(name, leadership.term) for name in config.served}
        served[config.namespace].is_open = True
        passwords = PasswordsTurns(
            cluster,
            config,
            logins,
            leadership,
            clocks,
            [_workers_place(one, config) for one in served.values()],
        )
        self._stores_turns = StoresTurns(
            tuple(served.values()),
            self._picture,
            config,
            leadership,
            clocks,
            passwords,
            wake_topologies=self._wake_all,
        )
        shared = Shared(
            config,
            readers,
            leadership,
            clocks,
            metrics,
            self._picture,
            CoreBudget(config.cores_max, mirrors),
            self._stores_turns,
            self._topologies,
            passwords,
            self._slas,
            self._loop,
            self._wake_all,
            self._now_us,
        )
        self._loops = {name: NamespaceLoops(one, shared) for name, one in served.items()}
        self._followed = [
            FollowedNamespace(served[name].cluster, served[name].mirror, watch, partial(self._opened, name))
            for name in config.namespaces
        ]

    def _serving(self, namespace: str, term: int) -> ServedNamespace:
        cluster, mirror = self._cluster, self._mirrors[namespace]
        if namespace != cluster.namespace:
            cluster = cluster.within(namespace)
        return ServedNamespace(
            namespace,
            cluster,
            mirror,
            NamespacePicture(cluster, mirror, self.mirror),
            Applier(cluster, mirror, term, self._metrics),
            ScheduleIndex(mirror),
        )

    async def run(self) -> None:
        """Raises LeaseLost, PermanentError when the cluster cannot be looked at (in an ExceptionGroup)."""
        await self._first_list()
        # Before any store is read; what is wrong with it is told by the loop of the stores.
        await self._stores_turns.look_at_passwords()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._relist_forever())
            for followed in self._followed:
                group.create_task(followed.follow())
            group.create_task(self._picture.foreign_forever())
            turns = self._loop(_STORES, "node stores", self._stores, self._stores_turns.turn)
            self._stores.task = group.create_task(turns)
            while True:
                self._names_changed.clear()
                self._start_and_end_loops(group)
                await self._names_changed.wait()

    def stalled(self) -> str:
        """Which loop does not come to the end of its turn, in a sentence; "" when all do."""
        now_s = self._clocks.monotonic_s()
        loops = {"the node stores": self._stores}
        loops |= {f"topology {self._title(key)}": work for key, work in self._topologies.items()}
        loops |= {f"the SLAs of topology {self._title(key)}": work for key, work in self._slas.items()}
        for what, work in loops.items():
            if not work.is_queued and now_s - work.turned_s > STALLED_S:
                return f"the loop of {what} has not ended a turn for {now_s - work.turned_s:.0f} s"
        return ""

    def _title(self, of: TopologyKey) -> str:
        return of.name if of.namespace == self._cluster.namespace else f"{of.namespace}/{of.name}"

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
                await list_anew(self._cluster, self.mirror)
            except RetryError as error:
                _LOG.warning("objects could not be listed: %s", error)
                await asyncio.sleep(_BACKOFF_S_MIN)

    async def _relist_forever(self) -> None:
        """What a watch lost is found here."""
        while True:
            await asyncio.sleep(RELIST_S)
            try:
                await list_anew(self._cluster, self.mirror, in_haste=False)
            except (RetryError, SkipTickError) as error:
                _LOG.warning("objects could not be listed: %s", error)
            except PermanentError as error:
                _LOG.error("objects cannot be listed: %s", error)

    def _start_and_end_loops(self, group: asyncio.TaskGroup) -> None:
        for loops in self._loops.values():
            loops.start_and_end(group)
        uids = {uid for loops in self._loops.values() for uid in loops.state_uids()}
        for reader in (self._readers.stores, self._readers.samples):
            reader.keep_only({store.address for store in self._picture.stores()}, uids)

    def _opened(self, namespace: str, is_open: bool) -> None:
        """A further namespace may be worked in from now on, or may not."""
        self._metrics.serves(namespace, is_open=is_open)
        self._loops[namespace].opened(is_open)
        self._names_changed.set()
        self._stores.wake_up(self._clocks.monotonic_s())

    async def _loop(self, loop: str, name: str, work: Work, turn: Callable[[], Awaitable[float]]) -> None:
        """Turn after turn. Only LeaseLost ends it."""
        try:
            await self._turns(loop, name, work, turn)
        finally:
            work.telling.cancel()

    async def _turns(self, loop: str, name: str, work: Work, turn: Callable[[], Awaitable[float]]) -> None:
        failures = 0
        while True:
            async with self._slot(loop, work):
                work.wake.clear()
                woken_s, work.woken_s = work.woken_s, None
                began_s = self._clocks.monotonic_s()
                try:
                    look_s = await turn()
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
            if loop == SLA and not failures:
                # What an interval is measured from is its begin.
                look_s = max(0.0, look_s - _GAP_S - (work.turned_s - began_s))
            gap_s = _STORES_GAP_S if loop == _STORES else _GAP_S
            await asyncio.sleep(look_s if failures else gap_s)
            # Not wait_for: before Python 3.12 it forgets a cancellation that comes as it is woken.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(look_s, _RESTING_LOOK_S_MAX if work.rest else _LOOK_S_MAX)):
                    await work.wake.wait()

    @contextlib.asynccontextmanager
    async def _slot(self, loop: str, work: Work) -> AsyncIterator[None]:
        """What a turn needs to begin. Who waits for it is not stalled."""
        if loop != TOPOLOGY:
            yield
            return
        work.is_queued = True
        try:
            # Who rests, and was not woken, has nothing to do that anybody knows of.
            async with self._slots.one(lambda: work.woken_s is not None or work.rest is None):
                work.is_queued = False
                work.turned_s = self._clocks.monotonic_s()
                yield
        finally:
            work.is_queued = False

    def _tell(self, loop: str, name: str, error: Exception, failures: int) -> None:
        kinds = ((RetryError, "retry"), (PermanentError, "permanent"), (SkipTickError, "skip"))
        kind = next((word for type_, word in kinds if isinstance(error, type_)), "bug")
        self._metrics.erred(loop, kind)
        if kind == "bug":
            _LOG.error("%s: a bug ended the turn", name, exc_info=error)
        elif failures & (failures - 1) == 0:  # the 1st, 2nd, 4th, ... in a row
            _LOG.warning("%s: the turn ended: %s", name, error)

    def _now_us(self) -> int:
        """As the wall clock was at first: who sets it starts and ends nothing."""
        return int((self._ahead_s + self._clocks.monotonic_s()) * 1e6)

    # --- waking

    def _changed(self, namespace: str, kind: Kind, thing: Object) -> None:
        """Something that decisions look at is another one."""
        came_s = self._came_s(self._mirrors[namespace])
        if kind == NODES:
            self._stores.wake_up(came_s)
            self._wake_on(name_of(thing), came_s, who_rest=not self._is_relabelled(thing))
        elif kind == STATEFUL_SETS or (is_store(thing) and self._mirrors[namespace] is self.mirror):
            self._stores.wake_up(came_s)
            self._wake_on(node_named(thing), came_s)
        else:
            if kind == SCHEDULES:
                self._stores.wake_up(came_s)
            if self._loops[namespace].changed(kind, thing, came_s):
                self._names_changed.set()

    def _is_relabelled(self, node: Object) -> bool:
        """Whether nothing else of the node has changed."""
        name = name_of(node)
        if self.mirror.get(NODES, name) is None:
            self._nodes.pop(name, None)
            return False
        known, seen = self._nodes.get(name), (node.get("spec"), node.get("status"))
        self._nodes[name] = seen
        return known == seen

    def _wake_on(self, node: str, came_s: float, *, who_rest: bool = True) -> None:
        """Who is on the node, and who wants anything: others have nothing to do with it. `node` may be a
        label's value."""
        for work in self._topologies.values():
            if work.rest is None or (
                who_rest and any(node in (one, label_value(one)) for one in work.rest.nodes)
            ):
                work.wake_up(came_s)

    def _wake_all(self) -> None:
        for work in self._topologies.values():
            work.wake_up(self._came_s(self.mirror))

    def _came_s(self, mirror: Mirror) -> float:
        """When the change came in that is being handed on."""
        return self._clocks.monotonic_s() if mirror.arrived_s is None else mirror.arrived_s


def _workers_place(served: ServedNamespace, config: OperatorConfig) -> WorkersPlace:
    index = WorkerIndex(served.mirror, config.store.auth_secret)
    return WorkersPlace(served.name, served.cluster, index.seen, lambda: served.is_open)
