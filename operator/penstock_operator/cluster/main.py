"""`penstock operator`: one replica, from the first connection to the exit code.

A replica tries for the Lease; the one that has it watches and reconciles until it is told to stop, or has
lost the Lease. Then the process ends at once, with a code of its own, and is started anew as a standby: what
it knew is not carried into another term. The Lease is kept in a thread with a loop and a connection of its
own, so that no turn, however long, makes a renewal late. Neighbours: `lease`, `reconcile`, `watches`,
`health`; the command line calls `operate`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import NoReturn

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PenstockError, PermanentError, RetryError
from penstock.store.node_clock import SteadyClock
from penstock.store.port import NodeStore
from penstock.store.redis.connection import Wire
from penstock.store.redis.wary_store import WaryStore
from penstock_operator.cluster.carrying_out.health import Health, serve
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.collector import ShortCollections
from penstock_operator.cluster.kubernetes_api.client import connect
from penstock_operator.cluster.kubernetes_api.fenced import FencedCluster
from penstock_operator.cluster.kubernetes_api.lease import Elector, LeaseLost, LeaseTimes, TermBehind
from penstock_operator.cluster.kubernetes_api.loop_thread import LoopThread, Runs
from penstock_operator.cluster.kubernetes_api.port import (
    LATENCY_SLAS,
    SCHEDULES,
    TOPOLOGIES,
    ClusterApi,
    Kind,
    KindUnknown,
    NotAllowed,
    Object,
)
from penstock_operator.cluster.kubernetes_api.watches import Watch, watch_by_kopf
from penstock_operator.cluster.observing.asked_store import OpenWire
from penstock_operator.cluster.observing.kept_schedules import KeptSchedules
from penstock_operator.cluster.observing.pairs_reader import PairsReader
from penstock_operator.cluster.observing.store_reader import OpenStoreClient, StoreReader
from penstock_operator.cluster.reconcile import STALLED_S, Reconciler
from penstock_operator.cluster.stores.store_passwords import Passwords
from penstock_operator.cluster.stores.telling_stores import StoreTelling
from penstock_operator.cluster.turns.passwords_turn import StoreLogin, StoreLogins, takes
from penstock_operator.cluster.turns.work import Clocks, Leadership, Readers

_LOG = logging.getLogger(__name__)

EXIT_STOPPED = 0
EXIT_FAILED = 1
EXIT_LEASE_LOST = 4
"""This replica led and no longer does: start it again, as a standby."""

POD_NAME = "PENSTOCK_POD_NAME"
_STORE_THREADS = 32
SWITCH_INTERVAL_S = 0.001
"""So long a thread runs while others wait: who has a store's or the API server's answer needs little time."""
_RETRY_S = 5.0
_SAMPLES_WAIT_S = 0.5
_WIRE_TIMEOUT_S = 2.0
"""An SLA does not wait longer for a store: what is missing holds."""
_STORE_USER = "operator"

HUNG_S = 30.0
"""A leader whose loop does not come round for so long gives up the Lease."""
_WORKED_EVERY_S = 1.0
_OF_NOTHING = {"penstock.dev/none": "none"}
"""Labels that nothing has: such a list says whether there is the kind."""
_END_WITHIN_S = 2.0
"""So long that loop has to end the process by itself when the Lease is lost."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a replica runs in; a test gives others. `identity` is of this start and of no other."""

    cluster: ClusterApi
    open_store: OpenStoreClient
    open_wire: OpenWire
    watch: Watch
    identity: str
    reporter: str
    lease_cluster: ClusterApi
    """What the Lease is kept through. Belongs to the loop of `lease_runs`."""
    lease_runs: Runs
    lease_times: LeaseTimes = LeaseTimes()  # noqa: RUF009 - frozen
    login: StoreLogin = field(default_factory=StoreLogin)
    """What `open_store` and `open_wire` log in by; told by who reads the stores' passwords."""
    takes: Callable[[str, Passwords], bool] = takes
    """Whether a store lets these users in. Blocks."""
    end: Callable[[int], object] = os._exit
    """Ends the process where its own loop does not come to it."""


def operate(config: OperatorConfig, environment: Mapping[str, str]) -> NoReturn:
    """Run a replica until SIGTERM or SIGINT, or until it cannot go on; ends the process with its code."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # it has no signals, on purpose
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    code = asyncio.run(_operate(config, environment))
    # Threads that wait for a store would keep a process that may not act any more, for seconds.
    sys.stderr.flush()
    os._exit(code)


async def _operate(config: OperatorConfig, environment: Mapping[str, str]) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    reporter = environment.get(POD_NAME) or socket.gethostname()
    login = StoreLogin()
    lease_runs = LoopThread("lease")
    try:
        cluster = await connect(config.namespace, environment.get("KUBECONFIG"))
        lease_cluster = await lease_runs.run(connect(config.namespace, environment.get("KUBECONFIG")))
    except PermanentError as error:
        _LOG.error("%s", error)
        return EXIT_FAILED
    surroundings = Surroundings(
        cluster=cluster,
        open_store=partial(_open_store, login),
        open_wire=partial(_open_wire, login),
        watch=watch_by_kopf,
        identity=f"{reporter}_{uuid.uuid4()}",
        reporter=reporter,
        lease_cluster=lease_cluster,
        lease_runs=lease_runs,
        login=login,
    )
    try:
        return await Replica(config, surroundings).run(stop)
    finally:
        await cluster.close()
        await lease_runs.run(lease_cluster.close())


def _open_store(login: StoreLogin, address: str, topology_uid: str) -> NodeStore:
    return WaryStore(f"redis://{_STORE_USER}@{address}", topology_uid, password=login)


def _open_wire(login: StoreLogin, address: str) -> Wire:
    return Wire(f"redis://{_STORE_USER}@{address}", _WIRE_TIMEOUT_S, login)


class Replica:
    """One of the operator's processes."""

    def __init__(self, config: OperatorConfig, surroundings: Surroundings) -> None:
        self._config = config
        self._around = surroundings
        self.metrics = OperatorMetrics()
        self._worked_s = time.monotonic()
        self.elector = Elector(
            surroundings.lease_cluster,
            f"{config.fullname}-operator",
            surroundings.identity,
            self._least_term,
            time.monotonic,
            lambda: datetime.now(UTC),
            surroundings.lease_times,
            is_working=lambda: time.monotonic() - self._worked_s < HUNG_S,
            renewed=self._has_renewed,
        )
        self._collections: ShortCollections | None = None
        self._ending: threading.Timer | None = None
        self.reconciler: Reconciler | None = None
        self._is_ready = False

    async def run(self, stop: asyncio.Event) -> int:
        """Until `stop`, or until it cannot go on; the exit code."""
        self._collections = ShortCollections()
        try:
            return await self._run(stop)
        finally:
            self._collections.end()

    async def _run(self, stop: asyncio.Event) -> int:
        try:
            server = await serve(self._config.metrics_ports.operator, self.health, self.metrics)
        except PermanentError as error:
            _LOG.error("%s", error)
            return EXIT_FAILED
        leading = asyncio.create_task(self._lead(), name="lead")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait({leading, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                for one in _leaves(leading.exception()):
                    if isinstance(one, TermBehind):
                        self.elector.saw_term(one.term)
                return _code_of(leading.exception())
            _LOG.info("told to stop")
            return EXIT_STOPPED
        finally:
            for task in (leading, stopped):
                task.cancel()
            await asyncio.gather(leading, stopped, return_exceptions=True)
            with contextlib.suppress(PenstockError, TimeoutError):
                async with asyncio.timeout(2):
                    await self._around.lease_runs.run(self.elector.release())
            if self._ending is not None:
                self._ending.cancel()
            await server.cleanup()

    def health(self) -> Health:
        fault = self.reconciler.stalled() if self.reconciler is not None else ""
        if not fault and self.elector.untried_s() > STALLED_S:
            fault = f"the Lease has not been tried for {self.elector.untried_s():.0f} s"
        role = "standby" if self.reconciler is None else "leader"
        return Health(role, self.elector.term, self._is_ready, fault)

    def running(self) -> int:
        """How many Topologies this replica has found running."""
        return 0 if self.reconciler is None else self.reconciler.phases().count("Running")

    async def _lead(self) -> None:
        """Take the Lease, and work until it is lost. Raises what ends it."""
        await self._wait_for_crds()
        self._is_ready = True
        _LOG.info("standing by as %s", self._around.identity)
        term = await self._around.lease_runs.run(self.elector.acquire())
        self._worked_s = time.monotonic()
        _LOG.info("leading in term %d", term)
        self.metrics.leads(term)
        self.metrics.counts_lease(lambda: self.elector.late)
        threads = ThreadPoolExecutor(_STORE_THREADS, thread_name_prefix="stores")
        steady_us = SteadyClock().now_us
        reader = StoreReader(self._around.open_store, threads, time.monotonic, steady_us)
        samples = StoreReader(
            self._around.open_store,
            threads,
            time.monotonic,
            steady_us,
            wait_s=_SAMPLES_WAIT_S,
            with_shard_rows=True,
        )
        reconciler = self.reconciler = Reconciler(
            FencedCluster(self._around.cluster, self.elector.may_act),
            Readers(
                reader,
                samples,
                KeptSchedules(self._around.open_wire, threads),
                PairsReader(self._around.open_store, threads),
            ),
            self._config,
            Leadership(term, self._around.reporter),
            Clocks(time.monotonic, time.time),
            self.metrics,
            StoreLogins(
                self._around.login,
                partial(self._refusing, threads),
                StoreTelling(self._around.open_wire, threads),
            ),
            self._around.watch,
        )
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        own = self._config.namespace
        stop_watching = self._around.watch(reconciler.mirror, own, lambda why: _break(broken, why))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._around.lease_runs.run(self._hold()))
                group.create_task(self._work_forever())
                group.create_task(reconciler.run())
                group.create_task(_wait_for(broken))
        finally:
            stop_watching()
            threads.shutdown(wait=False, cancel_futures=True)

    async def _refusing(
        self, threads: Executor, addresses: Sequence[str], passwords: Passwords
    ) -> Sequence[str]:
        """Stores that do not let these users in."""
        loop = asyncio.get_running_loop()
        asked = (loop.run_in_executor(threads, self._around.takes, one, passwords) for one in addresses)
        answers = await asyncio.gather(*asked)
        return [address for address, is_taken in zip(addresses, answers, strict=True) if not is_taken]

    async def _hold(self) -> None:
        """Keep the Lease, beside the loop that works. Once it is lost the process ends, whatever that loop is
        busy with."""
        try:
            await self.elector.hold()
        except LeaseLost:
            self._ending = threading.Timer(_END_WITHIN_S, self._around.end, [EXIT_LEASE_LOST])
            self._ending.daemon = True
            self._ending.start()
            raise

    def _has_renewed(self) -> None:
        if self._collections is not None:
            self._collections.renewed()

    async def _work_forever(self) -> None:
        """Says that the loop which works comes round."""
        while True:
            self._worked_s = time.monotonic()
            await asyncio.sleep(_WORKED_EVERY_S)

    async def _wait_for_crds(self) -> None:
        """kopf looks once which kinds there are: they must be there before it starts."""
        while True:
            try:
                for kind in (TOPOLOGIES, LATENCY_SLAS, SCHEDULES):
                    await self._around.cluster.list(kind, _OF_NOTHING)
                return
            except (KindUnknown, RetryError) as error:
                _LOG.warning("waiting: %s", error)
            await asyncio.sleep(_RETRY_S)

    async def _least_term(self) -> int:
        """The highest term of a Schedule; a Topology with a phase tells that somebody leads, or led."""
        terms = [int(one["term"]) for one in await self._listed(SCHEDULES, _term_only)]
        if not terms:
            # By its CRD a fresh one has a status too.
            topologies = await self._listed(TOPOLOGIES)
            terms = [1 for one in topologies if (one.get("status") or {}).get("phase")]
        return max(terms, default=0)

    async def _listed(self, kind: Kind, keep: Callable[[Object], Object] | None = None) -> list[Object]:
        """Those of all namespaces, of each what `keep` answers. A namespace that may not be read is passed
        over: nothing can be written there."""
        cluster, found = self._around.lease_cluster, list[Object]()
        for namespace in self._config.served:
            try:
                of = cluster if namespace == cluster.namespace else cluster.within(namespace)
                found += (await of.list(kind, keep=keep)).items
            except NotAllowed:
                if namespace == self._config.namespace:
                    raise
        return found


def _term_only(schedule: Object) -> Object:
    """To drop thousands of Schedules at once would hold up all threads."""
    return {"term": schedule["spec"]["term"]}


def _break(broken: asyncio.Future[None], why: str) -> None:
    if not broken.done():
        broken.set_exception(PermanentError(f"the watches broke: {why}"))


async def _wait_for(broken: asyncio.Future[None]) -> None:
    await broken


def _code_of(error: BaseException | None) -> int:
    """Of several errors of one moment the loss of the Lease counts first."""
    errors = _leaves(error)
    lost = next((one for one in errors if isinstance(one, LeaseLost)), None)
    if lost is not None:
        _LOG.error("this process ends: %s", lost)
        return EXIT_LEASE_LOST
    for one in errors:
        if isinstance(one, PenstockError):
            _LOG.error("this process ends: %s", one)
        else:
            _LOG.error("a bug ends this process", exc_info=one)
    return EXIT_FAILED


def _leaves(error: BaseException | None) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [] if error is None else [error]
