"""Who of the operator's replicas acts: one Lease, taken and held by comparing resourceVersions.

The Lease's `leaseTransitions` is one more at each acquisition; that number is the leader's *term*, which
stands in every Schedule and may only grow there. So a leader that lost the Lease without noticing (it was
stopped for a while, say) can do no harm to Schedules; for all else it asks `may_act` before each write.

Time is a monotonic clock of this process alone; nobody's wall clock is compared with another's. A candidate
takes over when the Lease did not change for its whole duration, as seen by the candidate itself. A Lease that
somebody deleted comes back as one that a stranger holds: its leader finds that and ends, and is followed like
any other that fell silent. Decision record 0010. Neighbours: `kubernetes_api.fenced` asks before writing,
`main` leads.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from penstock.errors import PenstockError, RetryError
from penstock_operator.cluster.kubernetes_api.port import LEASES, ClusterApi, Object, Refusal

STRANGER = "unknown-since-this-lease-was-deleted"
"""Holds a Lease that was made anew while somebody may lead without it."""


class LeaseLost(PenstockError):
    """This process leads no more and must end: what it knows may be old."""


class TermBehind(LeaseLost):
    """There has been a later `term` than this leader's, which the Lease does not show: an older state of the
    cluster was restored. Whoever leads next has to begin above it."""

    def __init__(self, message: str, term: int) -> None:
        super().__init__(message)
        self.term = term


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """`duration_s`: how long others wait for a silent leader. `renew_deadline_s`: when a leader that could
    not renew stops; below the duration. `retry_s`: between two tries."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0


@dataclass(frozen=True, slots=True)
class _Seen:
    resource_version: str
    at_s: float


class Elector:
    """One candidate for the Lease `name`. `identity` is of this start of the process and no other.

    `least_term` tells the highest term that anything but the Lease shows, 0 when nobody can have led so far:
    the term of a Lease that somebody deleted begins above it, and above all that this candidate saw.
    `is_working` tells whether the process does what it leads for: a leader that does not is not renewed, so
    that another one takes over. `renewed` is called after each renewal, when the next one is longest off. It
    runs in a loop of its own (`loop_thread`); `may_act`, `term` and the
    figures may be read from any thread.
    """

    def __init__(
        self,
        cluster: ClusterApi,
        name: str,
        identity: str,
        least_term: Callable[[], Awaitable[int]],
        clock_s: Callable[[], float],
        wall_time: Callable[[], datetime],
        times: LeaseTimes = LeaseTimes(),
        is_working: Callable[[], bool] = lambda: True,
        renewed: Callable[[], object] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._identity = identity
        self._least_term = least_term
        self._clock_s = clock_s
        self._wall_time = wall_time
        self._times = times
        self._is_working = is_working
        self._renewed = renewed
        self._seen: _Seen | None = None
        self._term: int | None = None
        self._seen_term = 0
        self._renewed_s = 0.0
        self._tried_s: float | None = None
        self.renewals = 0
        self.late = 0
        """Renewals that were done later than a half of `retry_s` after they were due."""

    @property
    def term(self) -> int | None:
        """The term of this leader; None before it leads."""
        return self._term

    def may_act(self) -> bool:
        """Whether nobody else can lead by now."""
        return self._term is not None and self._left_s() > 0

    def untried_s(self) -> float:
        """Since the last try began; 0 before the first one."""
        return 0.0 if self._tried_s is None else self._clock_s() - self._tried_s

    async def try_once(self) -> int | None:
        """Take the Lease if it is free, or renew it. The term if this process leads now.

        LeaseLost when it led and somebody else does now, or the deadline passed; errors of the cluster.
        """
        self._tried_s = self._clock_s()
        if self._term is not None and self._left_s() <= 0:
            raise LeaseLost(f"the Lease {self._name} was not renewed in time")
        # A time before the request is no later than when the Lease was written.
        began_s = self._clock_s()
        lease = await self._cluster.get(LEASES, self._name)
        self._seen_term = max(self._seen_term, _term_of(lease))
        if self._term is not None:
            await self._renew(lease)
        elif lease is None:
            await self._create()
        elif self._is_free(lease, began_s):
            await self._take(lease)
        if self._term is None:
            return None
        self._count(leads_anew=not self._renewed_s)
        self._renewed_s = began_s
        if self._left_s() <= 0:
            raise LeaseLost(f"the answer to renewing the Lease {self._name} came too late")
        return self._term

    async def acquire(self) -> int:
        """Wait until this process leads; its term. Errors of the cluster that do not pass."""
        while True:
            try:
                term = await self.try_once()
                if term is not None:
                    return term
            except RetryError:
                pass  # the API server is away: nobody can lead anew
            await asyncio.sleep(self._times.retry_s)

    async def hold(self) -> None:
        """Renew until that fails: LeaseLost, at the latest when the deadline passes."""
        while True:
            await asyncio.sleep(min(self._times.retry_s, max(self._left_s(), 0.0)))
            if not self._is_working():
                if self._left_s() <= 0:
                    raise LeaseLost(f"the Lease {self._name} was not renewed: this process does not work")
                continue
            try:
                async with asyncio.timeout(self._try_for_s()):
                    await self.try_once()
                self._renewed()
            except TimeoutError:
                continue
            except LeaseLost:
                raise
            except PenstockError as error:
                if self._left_s() <= 0:
                    raise LeaseLost(
                        f"the Lease {self._name} could not be renewed in time: {error}"
                    ) from error

    def saw_term(self, term: int) -> None:
        """There has been this term: the next one is later."""
        self._seen_term = max(self._seen_term, term)

    async def release(self) -> None:
        """Give the Lease away: the next candidate need not wait, and begins above all terms that were seen.
        Nothing happens if it is not held."""
        if self._term is None:
            return
        self.saw_term(self._term)
        self._term = None
        lease = await self._cluster.get(LEASES, self._name)
        if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
            free = copy.deepcopy(lease)
            free["spec"] |= {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "leaseTransitions": self._seen_term,
                "renewTime": self._now_text(),
            }
            await self._cluster.replace(LEASES, free)

    # --- inside

    def _count(self, *, leads_anew: bool) -> None:
        if leads_anew:
            return
        self.renewals += 1
        self.late += self._clock_s() - self._renewed_s > 1.5 * self._times.retry_s

    def _left_s(self) -> float:
        return self._renewed_s + self._times.renew_deadline_s - self._clock_s()

    def _try_for_s(self) -> float:
        """A try that hangs leaves time for another one, on another connection."""
        return max(min(self._left_s(), self._times.renew_deadline_s / 2), 0.001)

    def _is_free(self, lease: Object, now_s: float) -> bool:
        version = str(lease["metadata"]["resourceVersion"])
        if self._seen is None or self._seen.resource_version != version:
            self._seen = _Seen(version, now_s)
        spec = lease["spec"]
        if spec.get("holderIdentity", "") in {"", self._identity}:
            return True
        duration_s = float(spec.get("leaseDurationSeconds") or self._times.duration_s)
        return now_s - self._seen.at_s >= duration_s

    async def _create(self) -> None:
        """The Lease is not there: take it at once if nobody has led so far. Else somebody may lead, in a
        term that nothing shows yet, and has to find out first."""
        began_s = self._clock_s()
        least = max(self._seen_term, await self._least_term())
        spec = {**self._spec(least), "holderIdentity": STRANGER} if least else self._spec(1)
        head = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": self._name}}
        made = await self._cluster.create(LEASES, {**head, "spec": spec})
        if isinstance(made, Refusal):
            return
        if least:
            self._seen = _Seen(str(made["metadata"]["resourceVersion"]), began_s)
        else:
            self._term = 1

    async def _take(self, lease: Object) -> None:
        term = max(self._seen_term, await self._least_term()) + 1
        if not isinstance(await self._write(lease, self._spec(term)), Refusal):
            self._term = term

    async def _renew(self, lease: Object | None) -> None:
        spec = {} if lease is None else lease["spec"]
        if (
            lease is None
            or spec.get("holderIdentity") != self._identity
            or spec.get("leaseTransitions") != self._term
        ):
            raise LeaseLost(f"the Lease {self._name} was taken by {spec.get('holderIdentity') or 'nobody'}")
        if isinstance(await self._write(lease, {"renewTime": self._now_text()}), Refusal):
            raise LeaseLost(f"the Lease {self._name} was written by somebody else")

    async def _write(self, lease: Object, spec: Object) -> Object | Refusal:
        return await self._cluster.replace(LEASES, {**lease, "spec": {**lease["spec"], **spec}})

    def _spec(self, term: int) -> Object:
        now = self._now_text()
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._times.duration_s),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": term,
        }

    def _now_text(self) -> str:
        return self._wall_time().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _term_of(lease: Object | None) -> int:
    return 0 if lease is None else int(lease["spec"].get("leaseTransitions") or 0)
