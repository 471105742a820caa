"""One turn of the node stores' loop: which there are to be, and which of them is made anew.

Neighbours: `reconcile` says when; `node_stores` and `store_renewal` decide, `apply` writes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError, RetryError
from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.carrying_out.events import event_object
from penstock_operator.cluster.decisions.actions import Event, WriteSchedule
from penstock_operator.cluster.kubernetes_api.mirror import Mirror
from penstock_operator.cluster.kubernetes_api.port import (
    EVENTS,
    STATEFUL_SETS,
    TOPOLOGIES,
    ClusterApi,
    name_of,
)
from penstock_operator.cluster.observing.cluster_picture import ClusterPicture
from penstock_operator.cluster.stores.node_stores import decide_stores
from penstock_operator.cluster.stores.retained_homes import retained_homes
from penstock_operator.cluster.stores.schedule_index import ScheduleIndex
from penstock_operator.cluster.stores.store_renewal import RenewalMemory, as_cordoned, decide_renewal
from penstock_operator.cluster.stores.store_tries import StoreTries
from penstock_operator.cluster.turns.passwords_turn import PasswordsTurns
from penstock_operator.cluster.turns.work import Clocks, Leadership

_LOG = logging.getLogger(__name__)


class StoresTurns:
    """`wake_topologies`: another node is to be emptied for its store's renewal, or none any more."""

    def __init__(
        self,
        cluster: ClusterApi,
        mirror: Mirror,
        picture: ClusterPicture,
        applier: Applier,
        config: OperatorConfig,
        leadership: Leadership,
        clocks: Clocks,
        passwords: PasswordsTurns,
        *,
        wake_topologies: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._picture = picture
        self._applier = applier
        self._config = config
        self._leadership = leadership
        self._clocks = clocks
        self._passwords = passwords
        self._wake_topologies = wake_topologies
        self._index = ScheduleIndex(mirror)
        self._renewal = RenewalMemory()
        self._tries = StoreTries()
        self._told: set[tuple[str, Event]] = set()

    @property
    def renewing(self) -> str:
        """The node whose store is being renewed; "" for none."""
        return self._renewal.node

    async def turn(self) -> float:
        """One look at the stores and what follows; seconds to the next one. What is wrong with passwords is
        raised at the end: stores are looked after all the same."""
        fault = await self.look_at_passwords()
        named, now_s = self._named(), self._clocks.monotonic_s()
        decision = decide_stores(self._config, self._picture.nodes(""), self._picture.stores(), named)
        due = self._tries.due(decision.actions, now_s)
        outcome = await self._applier.carry_out(due)
        self._tries.tried(due, {one.name: one.message for one in outcome.refused}, now_s)
        renewed = await self._renew(named, decision.replaced)
        await self._applier.carry_out(self._retained())
        await self._tell({*decision.notices, *self._tries.notices, *renewed})
        if fault is not None:
            raise fault
        return math.inf

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
            self._picture.nodes(""),
            self._picture.stores(),
            named,
            self._renewal,
            self._clocks.monotonic_s(),
            replaced,
        )
        if renewal.memory.node != self._renewal.node:
            _LOG.info("the store that is being renewed is %s", renewal.memory.node or "none")
            self._wake_topologies()
        self._renewal = renewal.memory
        if renewal.restart is not None:
            await self._applier.carry_out([renewal.restart])
        return renewal.notices

    def _retained(self) -> tuple[WriteSchedule, ...]:
        """Homes for what no Topology looks after, off nodes that go. An absent Topology is known of by a
        complete list alone."""
        if not self._mirror.is_complete():
            return ()
        topologies = {name_of(one) for one in self._mirror.all(TOPOLOGIES)}
        return retained_homes(
            self._picture.schedules_but_of(topologies),
            topologies,
            as_cordoned(self._picture.nodes(""), self._renewal.node),
            self._picture.stores(),
            self._config,
            self._leadership.term,
        )

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
        """Stores that a Schedule names; None while that is not known."""
        if not self._mirror.is_complete():
            return None
        return self._index.named_stores()
