"""How many cores each executor needs: Elasticutor (Wang et al., SIGMOD 2019), section 4.1.

A topology is a Jackson network, executor j in it an M/M/k_j system. Cores are added one by one where the
expected latency falls most, until it is within its bound or the budget is spent. Neighbours: `shard_rates`
measures what goes in, `core_assignment` finds the nodes for what comes out.

The paper starts at k_j = ceil(lambda_j / mu_j) + 1 and is silent on a budget that does not reach that far.
Then every executor has one core (its shards would stand still without), the next cores go where the load on
a core is worst until all are stable, and only then to where latency falls most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

US_PER_S = 1e6
_ROUNDING = 1e-9
"""A ratio this little above a whole number is that number: it was computed."""
_SCALAR_ROWS = 6
"""Below this many rows numpy's calls cost more than plain floats."""
_GAIN_SHARE_MIN = 1e-3
"""Of the bound: the least that a core must bring once no number of cores can meet it."""


def erlang_b(offered: Floats, servers: Integers) -> Floats:
    """Erlang's loss formula B(k, a) for each pair of `offered` load a = lambda / mu and `servers` k,
    elementwise.

    By B(0) = 1, B(n) = a B(n-1) / (n + a B(n-1)): every value is within [0, 1], so that no factorial and no
    power can overflow, at any k.
    """
    order = np.argsort(-servers, kind="stable")
    load, counts = offered[order], servers[order]
    blocked = np.ones(len(order))
    most = int(counts[0]) if len(counts) else 0
    # Sorted by k, those that still go on at n are the first so many.
    alive = np.searchsorted(-counts, -np.arange(1, most + 1), side="right").tolist()
    step = 0
    while step < most and (rows := alive[step]) > _SCALAR_ROWS:
        step += 1
        product = load[:rows] * blocked[:rows]
        blocked[:rows] = product / (step + product)
    for row in range(alive[step] if step < most else 0):
        a, b = float(load[row]), float(blocked[row])
        for n in range(step + 1, int(counts[row]) + 1):
            b = a * b / (n + a * b)
        blocked[row] = b
    answer = np.empty(len(order))
    answer[order] = blocked
    return answer


def erlang_c(offered: Floats, servers: Integers) -> Floats:
    """The share of rows that wait: C = k B / (k - a (1 - B)) of Erlang's loss formula; 1 where k <= a."""
    return _waiting(offered, servers, erlang_b(offered, servers))


def _waiting(offered: Floats, servers: Integers, blocked: Floats) -> Floats:
    stable = servers > offered
    spare = np.where(stable, servers - offered * (1 - blocked), 1.0)
    return np.where(stable, servers * blocked / spare, 1.0)


def sojourn_us(arrival_per_s: Floats, service_per_s: Floats, cores: Integers) -> Floats:
    """E[T_j](k_j): mean time in an M/M/k system, C / (k mu - lambda) + 1 / mu, in microseconds, elementwise.

    `service_per_s` is mu of one core. math.inf where k <= lambda / mu.
    """
    return _time_us(arrival_per_s, service_per_s, cores, erlang_b(arrival_per_s / service_per_s, cores))


def _time_us(arrival_per_s: Floats, service_per_s: Floats, cores: Integers, blocked: Floats) -> Floats:
    """`sojourn_us` where Erlang B is known."""
    offered = arrival_per_s / service_per_s
    stable = cores > offered
    spare_per_s = np.where(stable, cores * service_per_s - arrival_per_s, 1.0)
    seconds = _waiting(offered, cores, blocked) / spare_per_s + 1 / service_per_s
    return np.where(stable, seconds * US_PER_S, math.inf)


def expected_latency_us(arrival_per_s: Floats, time_us: Floats, input_per_s: float) -> float:
    """E[T](k) of equation (1): sum over j of lambda_j E[T_j], over lambda_0. 0 without input; executors that
    nothing reaches add nothing, however few cores they have."""
    reached = arrival_per_s > 0
    if input_per_s <= 0 or not reached.any():
        return 0.0
    return float(arrival_per_s[reached] @ time_us[reached]) / input_per_s


def minimal_cores(arrival_per_s: Floats, service_per_s: Floats) -> Integers:
    """The paper's start, ceil(lambda / mu) + 1, elementwise."""
    return (np.ceil(arrival_per_s / service_per_s - _ROUNDING) + 1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Bound:
    """E[T] over the executors of all parts that name it, by equation (1), is to be at most `target_us`
    (T_max); `input_per_s` is lambda_0, the rate of the stream that the bound is about."""

    target_us: float
    input_per_s: float


@dataclass(frozen=True, slots=True)
class Part:
    """An operator among others: its bound (an index), the limits of its cores together, and the size of one
    of its cores in thousandths (a task may ask for a slice)."""

    bound: int
    cores_min: int
    cores_max: int
    core_milli: int = 1000


@dataclass(frozen=True, slots=True)
class Network:
    """Executors as arrays of one length. `part` is an index into `parts`. `most` are the cores that an
    executor can use: a shard runs on one at a time, so its number of shards. `fixed` is -1, or the cores of
    an executor that is not to be decided upon: its cores count, its latency is not known. `needed` are the
    cores that each is to have where another model says so; bounds then ask for none on top."""

    arrival_per_s: Floats
    service_per_s: Floats
    part: Integers
    fixed: Integers
    most: Integers
    parts: tuple[Part, ...]
    bounds: tuple[Bound, ...]
    needed: Integers | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """`cores` is k, one an executor. `latency_us` is E[T] of each bound, over the executors that are not
    fixed.

    `affordable` is false when limits or budget did not reach ceil(lambda / mu) + 1 for everyone.
    `unreachable` are bounds (indices) that no number of cores could meet: serving alone takes longer, or an
    executor would need more cores than it can use.
    """

    cores: Integers
    latency_us: tuple[float, ...]
    affordable: bool
    unreachable: tuple[int, ...]


_UNSTABLE, _MINIMUM, _LATENCY = range(3)
"""What the next core of an executor would be for, most urgent first."""


def allocate(network: Network, budget_milli: float) -> Allocation:
    """k for `network`: as few cores as meet its bounds, within limits and `budget_milli` (thousandths of a
    core).

    The greedy algorithm of section 4.1; optimal, as each lambda_j E[T_j](k_j) is convex in k_j. Executors
    under different bounds compete by what a core brings relative to its bound. Where not even one core each
    is affordable the answer still has one each: who goes without is then the assignment's matter.
    """
    greedy = _Greedy(network, budget_milli)
    greedy.run()
    return Allocation(
        cores=np.array(greedy.cores, dtype=np.int64),
        latency_us=tuple(greedy.latency_us(bound) for bound in range(len(network.bounds))),
        affordable=greedy.affordable,
        unreachable=tuple(index for index, least in enumerate(greedy.worth_min) if least > 0),
    )


class _Greedy:
    """The allocation while it grows. Plain lists: one core at a time, arrays would cost more than they
    save."""

    def __init__(self, network: Network, budget_milli: float) -> None:
        self._network = network
        self._budget_milli = budget_milli
        decided = network.fixed < 0
        arrival = np.where(decided, network.arrival_per_s, 0.0)
        service = np.where(decided & (arrival > 0), network.service_per_s, 1.0)
        most = np.maximum(1, network.most)
        least = minimal_cores(arrival, service) if network.needed is None else network.needed
        minimal = np.where(decided, np.minimum(least, most), network.fixed)
        self.affordable = self._fits(minimal)
        cores = minimal if self.affordable else np.where(decided, 1, network.fixed)
        offered = arrival / service
        blocked = erlang_b(offered, cores)

        self.cores: list[int] = cores.tolist()
        self._minimal: list[int] = minimal.tolist()
        self._most: list[int] = most.tolist()
        self._decided: list[bool] = decided.tolist()
        self._arrival: list[float] = arrival.tolist()
        self._service: list[float] = service.tolist()
        self._offered: list[float] = offered.tolist()
        self._part: list[int] = network.part.tolist()
        self._bound = [part.bound for part in network.parts]
        self._used: list[int] = np.bincount(network.part, cores, len(network.parts)).astype(int).tolist()
        self._spent_milli: float = sum(
            used * part.core_milli for used, part in zip(self._used, network.parts, strict=True)
        )
        # lambda_j E[T_j] summed by bound, rows in the system; those that never catch up are counted apart.
        time = _time_us(arrival, service, cores, blocked)
        unstable = np.isinf(time)
        bound = np.array(self._bound, dtype=np.int64)[network.part] if len(cores) else network.part
        count = len(network.bounds)
        hopeless = decided & (offered >= most)
        self._hopeless: list[int] = np.bincount(bound, hopeless, count).astype(int).tolist()
        weight = np.where(unstable, 0.0, arrival * np.where(unstable, 0.0, time))
        self._in_system: list[float] = np.bincount(bound, weight, count).tolist()
        self._unstable: list[int] = np.bincount(bound, unstable & (arrival > 0), count).astype(int).tolist()
        self._time: list[float] = time.tolist()
        product = offered * blocked
        blocked_next = product / (cores + 1 + product)
        self._blocked_next: list[float] = blocked_next.tolist()
        self._time_next: list[float] = _time_us(arrival, service, cores + 1, blocked_next).tolist()
        serving = np.bincount(bound, arrival / service * US_PER_S, count).tolist()
        self.worth_min = [
            _GAIN_SHARE_MIN if stuck or least >= each.target_us * each.input_per_s > 0 else 0.0
            for each, least, stuck in zip(network.bounds, serving, self._hopeless, strict=True)
        ]

    def latency_us(self, bound: int) -> float:
        """E[T] of equation (1) as it stands."""
        return math.inf if self._hopeless[bound] else self._reachable_us(bound)

    def _reachable_us(self, bound: int) -> float:
        """The same without executors that no core can help."""
        input_per_s = self._network.bounds[bound].input_per_s
        if self._unstable[bound] > self._hopeless[bound]:
            return math.inf
        return max(0.0, self._in_system[bound]) / input_per_s if input_per_s > 0 else 0.0

    def run(self) -> None:
        """Add cores until nobody needs or may have one more."""
        parts = self._network.parts
        wanted = [self._bound_unmet(part.bound) for part in parts]
        below = [used < part.cores_min for used, part in zip(self._used, parts, strict=True)]
        if self.affordable and not any(wanted) and not any(below):
            return
        heap = [
            self._entry(j)
            for j, part in enumerate(self._part)
            if self._decided[j]
            and (below[part] or self.cores[j] < self._minimal[j] or (wanted[part] and self._arrival[j] > 0))
        ]
        heapify(heap)
        while heap:
            urgency, lacking, j = heappop(heap)
            part = self._network.parts[self._part[j]]
            if self.cores[j] >= self._most[j] or self._used[self._part[j]] >= part.cores_max:
                continue
            if self._spent_milli + part.core_milli > self._budget_milli:
                continue
            worthless = -lacking < self.worth_min[part.bound] and self._used[self._part[j]] >= part.cores_min
            if not self._wanting(j) or (urgency == _LATENCY and worthless):
                continue
            self._add(j, part)
            heappush(heap, self._entry(j))

    def _fits(self, cores: Integers) -> bool:
        parts = self._network.parts
        used = np.bincount(self._network.part, cores, len(parts))
        if any(count > part.cores_max for count, part in zip(used, parts, strict=True)):
            return False
        milli = sum(count * part.core_milli for count, part in zip(used, parts, strict=True))
        return bool(milli <= self._budget_milli)

    def _wanting(self, j: int) -> bool:
        """Whether its own stability, its bound or its operator's lower limit asks for more."""
        part = self._network.parts[self._part[j]]
        if self.cores[j] < self._minimal[j] or self._used[self._part[j]] < part.cores_min:
            return True
        return self._arrival[j] > 0 and self._bound_unmet(part.bound)

    def _bound_unmet(self, bound: int) -> bool:
        if self._network.needed is not None:
            return False
        return self._reachable_us(bound) > self._network.bounds[bound].target_us

    def _entry(self, j: int) -> tuple[int, float, int]:
        """(what for, minus how much, j): a heap's least is the core that is wanted most."""
        cores = self.cores[j]
        if cores <= self._offered[j]:
            return _UNSTABLE, -self._offered[j] / cores, j
        bound = self._network.bounds[self._bound[self._part[j]]]
        gain = self._arrival[j] * (self._time[j] - self._time_next[j])
        worth = gain / (bound.target_us * bound.input_per_s) if bound.input_per_s > 0 else 0.0
        return (_MINIMUM if cores < self._minimal[j] else _LATENCY), -worth, j

    def _add(self, j: int, part: Part) -> None:
        arrival, service, offered = self._arrival[j], self._service[j], self._offered[j]
        bound = part.bound
        before, after = self._time[j], self._time_next[j]
        if after < math.inf:
            if before < math.inf:
                self._in_system[bound] -= arrival * (before - after)
            else:
                self._in_system[bound] += arrival * after
                self._unstable[bound] -= arrival > 0
        cores = self.cores[j] = self.cores[j] + 1
        self._used[self._part[j]] += 1
        self._spent_milli += part.core_milli
        product = offered * self._blocked_next[j]
        blocked = product / (cores + 1 + product)
        self._time[j] = after
        self._time_next[j] = _sojourn_us(arrival, service, offered, cores + 1, blocked)
        self._blocked_next[j] = blocked


def _sojourn_us(arrival: float, service: float, offered: float, cores: int, blocked: float) -> float:
    """`sojourn_us` of one executor whose Erlang B is known."""
    if cores <= offered:
        return math.inf
    waits = cores * blocked / (cores - offered * (1 - blocked))
    return (waits / (cores * service - arrival) + 1 / service) * US_PER_S
