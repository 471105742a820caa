"""One turn of the node stores' loop: which there are to be, where they may be, and which is made anew.

Neighbours: `reconcile` says when; `node_stores` and `store_renewal` decide, `apply` writes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError, RetryError
from penstock.schedule.store_ids import in_words, node_of
from penstock_operator.cluster.carrying_out.events import event_object
from penstock_operator.cluster.decisions.actions import Event
from penstock_operator.cluster.kubernetes_api.port import (
    EVENTS,
    STATEFUL_SETS,
    TOPOLOGIES,
    VOLUME_CLAIMS,
    VOLUMES,
    NotAllowed,
    ObjectInvalid,
    name_of,
)
from penstock_operator.cluster.manifests.node_store import claim_name
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture
from penstock_operator.cluster.observing.observed import ObservedNode, ObservedStore
from penstock_operator.cluster.stores.homeless import (
    Homeless,
    gone_since,
    homeless_stores,
    pods_to_make_anew,
    why_lost,
)
from penstock_operator.cluster.stores.retained_homes import retained_homes
from penstock_operator.cluster.stores.store_decisions import StoreDecisions
from penstock_operator.cluster.stores.store_renewal import (
    RenewalMemory,
    as_cordoned,
    as_to_be_left,
    decide_renewal,
)
from penstock_operator.cluster.stores.store_tries import StoreTries
from penstock_operator.cluster.turns.passwords_turn import PasswordsTurns
from penstock_operator.cluster.turns.served_namespace import ServedNamespace
from penstock_operator.cluster.turns.work import Clocks, Leadership

_LOG = logging.getLogger(__name__)

_HOMELESS_LOOK_S = 5.0
"""While a node with a store is gone: of volumes nobody is told."""


class StoresTurns:
    """`served` are all namespaces whose Schedules name stores, the first is the stores' own.
    `wake_topologies`: another store is to be emptied for its renewal, or none any more."""

    def __init__(
        self,
        served: Sequence[ServedNamespace],
        picture: ClusterPicture,
        config: OperatorConfig,
        leadership: Leadership,
        clocks: Clocks,
        passwords: PasswordsTurns,
        *,
        wake_topologies: Callable[[], None],
    ) -> None:
        self._served = served
        self._cluster = served[0].cluster
        self._mirror = served[0].mirror
        self._applier = served[0].applier
        self._picture = picture
        self._config = config
        self._leadership = leadership
        self._clocks = clocks
        self._passwords = passwords
        self._wake_topologies = wake_topologies
        self._decisions = StoreDecisions(config)
        self._renewal = RenewalMemory()
        self._tries = StoreTries()
        self._told: set[tuple[str, Event]] = set()
        self._gone_since: dict[str, float] = {}
        self._homeless = Homeless()
        self._looked_at: tuple[tuple[tuple[str, str], ...], float] = ((), 0.0)
        """Which of them (id, uid) were looked at last, and when."""

    @property
    def renewing(self) -> str:
        """The id of the store that is being renewed; "" for none."""
        return self._renewal.store

    @property
    def lost(self) -> Mapping[str, str]:
        """Store id -> why nothing of it will be back by itself."""
        return self._homeless.lost

    async def turn(self) -> float:
        """One look at the stores and what follows; seconds to the next one. What is wrong with passwords is
        raised at the end: stores are looked after all the same."""
        fault = await self.look_at_passwords()
        named, now_s = self._named(), self._clocks.monotonic_s()
        await self._look_at_homeless(named, now_s)
        nodes, stores = self._picture.nodes(), self._picture.stores()
        decision = self._decisions.about(nodes, stores, named, self._homeless)
        due = self._tries.due(decision.actions, now_s)
        outcome = await self._applier.carry_out(due)
        self._tries.tried(due, {one.name: one.message for one in outcome.refused}, now_s)
        await self._applier.carry_out(pods_to_make_anew(self._picture.stores(), self._homeless.may_go))
        renewed = await self._renew(named, decision.replaced)
        for one in self._served:
            await self._rehome_retained(one)
        await self._tell({*decision.notices, *self._tries.notices, *renewed})
        if fault is not None:
            raise fault
        return math.inf if not self._gone_since else _HOMELESS_LOOK_S

    async def _look_at_homeless(self, named: set[str] | None, now_s: float) -> None:
        """What became of the volumes of stores whose node is gone; of none while there is no such store."""
        nodes, stores = self._picture.nodes(), self._picture.stores()
        self._gone_since = gone_since(self._gone_since, nodes, stores, now_s)
        found = homeless_stores(stores, named, self._gone_since, now_s)
        of = tuple((store.id, store.uid) for store in found)
        if of == self._looked_at[0] and now_s - self._looked_at[1] < _HOMELESS_LOOK_S:
            return
        self._looked_at = (of, now_s)
        reasons = {store.id: await self._why_lost(store, nodes) for store in found}
        lost = {store: reason for store, reason in reasons.items() if reason}
        homeless = Homeless(frozenset(reasons.keys() - lost.keys()), lost)
        if homeless != self._homeless:
            for store in homeless.may_go - self._homeless.may_go:
                _LOG.info(
                    "node %s is gone: store %s comes up where its volume can be mounted",
                    node_of(store),
                    store,
                )
            for store in homeless.lost.keys() - self._homeless.lost.keys():
                _LOG.warning("store %s is lost: %s", store, homeless.lost[store])
            self._homeless = homeless
            self._wake_topologies()

    async def _why_lost(self, store: ObservedStore, nodes: Sequence[ObservedNode]) -> str:
        """Where volumes may not be looked at, the scheduler finds out whether one can be mounted."""
        claim = volume = None
        try:
            if store.has_pvc:
                claim = await self._cluster.get(VOLUME_CLAIMS, claim_name(store.stateful_set))
            bound = ((claim or {}).get("spec") or {}).get("volumeName")
            if bound:
                volume = await self._cluster.get(VOLUMES, bound)
        except NotAllowed as error:
            _LOG.info("the volume of the store of %s cannot be looked at: %s", in_words(store.id), error)
            return ""
        return why_lost(store, claim, volume, nodes)

    async def look_at_passwords(self) -> RetryError | PermanentError | None:
        """What keeps them from being looked after, if anything does."""
        try:
            await self._passwords.turn(self._picture.stores())
        except (RetryError, PermanentError) as fault:
            return fault
        return None

    async def _renew(
        self, named: set[str] | None, replaced: Mapping[str, str]
    ) -> tuple[tuple[str, Event], ...]:
        """Bring stores to their newest template, one after the other; what people are to be told."""
        renewal = decide_renewal(
            self._picture.nodes(),
            self._picture.stores(),
            named,
            self._renewal,
            self._clocks.monotonic_s(),
            replaced,
        )
        if renewal.memory.store != self._renewal.store:
            _LOG.info("the store that is being renewed is %s", renewal.memory.store or "none")
            self._wake_topologies()
        self._renewal = renewal.memory
        if renewal.restart is not None:
            await self._applier.carry_out([renewal.restart])
        return renewal.notices

    async def _rehome_retained(self, served: ServedNamespace) -> None:
        """Homes for what no Topology of a namespace looks after, off nodes that go. An absent Topology is
        known of by a complete list alone."""
        if not (served.is_open and served.mirror.is_complete()):
            return
        topologies = {name_of(one) for one in served.mirror.all(TOPOLOGIES)}
        nodes, stores = self._picture.nodes(), self._picture.stores()
        writes = retained_homes(
            served.picture.schedules_but_of(topologies),
            topologies,
            as_cordoned(nodes, stores, self._config, self._renewal.store),
            as_to_be_left(nodes, stores, self._config, self._renewal.store),
            self._config,
            self._leadership.term,
            served.name,
        )
        try:
            await served.applier.carry_out(writes)
        except (NotAllowed, ObjectInvalid) as error:
            if served is self._served[0]:
                raise
            # others' homes do not wait for it; it is tried again at each turn
            _LOG.warning("retained Schedules of namespace %s cannot be written: %s", served.name, error)

    async def _tell(self, notices: set[tuple[str, Event]]) -> None:
        """An event on the StatefulSet, once for as long as it holds."""
        for name, event in sorted(notices - self._told, key=lambda notice: notice[0]):
            held = self._mirror.get(STATEFUL_SETS, name)
            if held is None:
                continue
            _LOG.info("%s: %s", name, event.message)
            regarding = {"apiVersion": STATEFUL_SETS.api_version, "kind": STATEFUL_SETS.kind, **held}
            told = event_object(event, regarding, self._clocks.now(), self._leadership.reporter)
            await self._cluster.create(EVENTS, told)
        self._told = notices

    def _named(self) -> set[str] | None:
        """Stores that a Schedule of any namespace names; None while that is not known."""
        named: set[str] = set()
        for one in self._served:
            of_one = one.index.named_stores() if one.mirror.is_complete() else None
            if of_one is None:
                return None
            named |= of_one
        return named
