"""On which nodes executors get their cores: Elasticutor (Wang et al., SIGMOD 2019), section 4.2, Algorithm 1.

`jackson` says how many; here the present assignment X~ becomes one with enough, at a small migration cost
C(X|X~) and with the cores of data-intensive executors on their own node. `assign_naive` is naive-EC (section
5.4): the same without these two concerns. Neighbours: `elasticutor.policy` calls both.

What the paper leaves open is decided so (decision record 0013):

- Order. The text says descending data intensity, line 4 non-descending. Descending: executors that can take
  one node's cores only choose before those that can take any.
- Idle cores. Algorithm 1 knows only cores that somebody holds. A node's idle cores come first there, at C+
  alone.
- Robbed executors. Line 7 takes from executors that have no more than they need, and nobody serves these
  again. Here it takes from over-provisioned ones while the node has any; who is robbed otherwise is not
  data-intensive (the text; the line would also let a satisfied data-intensive one be robbed, which has
  nowhere else to go) and is served after all data-intensive ones, from any node.
- C- at X = 1 is 0 / 0. It is infinite: an executor's last core is never taken. C+ at X = 0 is 0 / 0 too: the
  state of an executor without a core is at home, so its first core costs nothing there and all of s_j
  elsewhere.
- Constraint (c). Algorithm 1 looks at under-provisioned executors only, and leaves a data-intensive one with
  remote cores as it is. Here it gets local cores until it has k_j of them, and gives up the remote ones.
- FAIL for an executor that takes cores anywhere has no cure in a higher phi: it goes short, and the answer
  says so.
- Cores differ in size where tasks ask for slices: a core is taken only where it makes room enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

THRESHOLD_BYTES_PER_S = 512 * 1024.0
"""The paper's default phi~: below it the benefit of locality is negligible."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Executors and nodes are indices. Sequences are one entry an executor, except `capacity_milli`.

    `capacity_milli` is c_i in thousandths of a core; `allocation` is k; `assigned` is X~, node -> cores,
    without zeros; `home` is I(j), -1 where it is not known; `state_bytes` is s_j; `intensity_bytes_per_s` is
    input and output over k_j; `core_milli` is the size of one of its cores. A `pinned` executor keeps what it
    has.
    """

    capacity_milli: Sequence[int]
    allocation: Sequence[int]
    assigned: Sequence[Mapping[int, int]]
    home: Sequence[int]
    state_bytes: Sequence[float]
    intensity_bytes_per_s: Sequence[float]
    core_milli: Sequence[int]
    pinned: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Assigned:
    """`cores` is X, node -> cores for each executor, without zeros. `threshold_bytes_per_s` is the phi that
    it holds for; `short` are executors (indices) that have less than their k_j, as no core was left."""

    cores: tuple[Mapping[int, int], ...]
    totals: tuple[int, ...]
    threshold_bytes_per_s: float
    short: tuple[int, ...]


def allocation_cost(state_bytes: float, total: int, here: int) -> float:
    """C+_ij: state that moves to node i if executor j, with `total` cores, `here` of them on i, gets one more
    there: s (X - x) / (X (X + 1)). For X = 0 see the module: this is the cost away from home."""
    return state_bytes * (total - here) / (total * (total + 1)) if total else state_bytes


def deallocation_cost(state_bytes: float, total: int, here: int) -> float:
    """C-_ij: state that moves off node i if executor j gives up one of its cores there: s (X - x) / (X (X -
    1)); math.inf for the last one."""
    return state_bytes * (total - here) / (total * (total - 1)) if total > 1 else math.inf


def migration_cost(
    before: Sequence[Mapping[int, int]],
    after: Sequence[Mapping[int, int]],
    state_bytes: Sequence[float],
    home: Sequence[int],
) -> float:
    """C(X|X~) of section 4.2: bytes of state that leave a node, summed over executors and nodes. The state of
    an executor without any core is at home."""
    moved = 0.0
    for old, new, state, at in zip(before, after, state_bytes, home, strict=True):
        old_share, new_share = _shares(old, at), _shares(new, at)
        moved += sum(state * max(0.0, share - new_share.get(i, 0.0)) for i, share in old_share.items())
    return moved


def _shares(cores: Mapping[int, int], home: int) -> dict[int, float]:
    total = sum(cores.values())
    return {node: count / total for node, count in cores.items()} if total else {home: 1.0}


def assign(problem: Problem, threshold_bytes_per_s: float = THRESHOLD_BYTES_PER_S) -> Assigned:
    """Algorithm 1, begun at `threshold_bytes_per_s` (phi~) and run again with phi doubled until it does not
    FAIL.

    Over-provisioned executors keep what nobody needed: `release` gives it back. Ends, as no executor is
    data-intensive at a phi above all intensities. ValueError for a threshold that is not positive.
    """
    if threshold_bytes_per_s <= 0:
        raise ValueError(f"a threshold of {threshold_bytes_per_s} bytes/s cannot be doubled")
    threshold = threshold_bytes_per_s
    intensity = np.array(problem.intensity_bytes_per_s)
    local = _Local(problem)
    while True:
        intensive = intensity > threshold
        if local.may_hold(intensive):
            work = _Work(problem, intensive.tolist())
            if work.run():
                return work.answer(threshold)
        threshold *= 2


def assign_naive(problem: Problem, first_node: int = 0) -> Assigned:
    """Naive-EC: Algorithm 1 with all costs equal and no executor data-intensive.

    Idle cores go first, then those of over-provisioned executors; all nodes being equal, they take turns,
    from `first_node` on. The answer's threshold is math.inf.
    """
    work = _Work(problem, [False] * len(problem.allocation))
    work.run_naive(first_node)
    return work.answer(math.inf)


def release(problem: Problem, assigned: Assigned, keep: Sequence[int], remote_first: bool = True) -> Assigned:
    """Give back what executors have above `keep`, one number an executor.

    Nobody waits for these cores, so the paper's C- alone does not choose: remote cores go first, since they
    cost transfer for as long as they stay, and among those and among local ones the cheapest by C-. Without
    `remote_first` (naive-EC) the one that came last goes first.
    """
    cores, totals = list(assigned.cores), list(assigned.totals)
    for j, least in enumerate(keep):
        if totals[j] <= least or problem.pinned[j] or totals[j] <= 1:
            continue
        surplus = totals[j] - max(1, least)
        totals[j] -= surplus
        mine = dict(cores[j])
        for _ in range(surplus):
            total = sum(mine.values())
            if remote_first:
                state, home = problem.state_bytes[j], problem.home[j]
                node = min((i == home, deallocation_cost(state, total, here), i) for i, here in mine.items())[
                    2
                ]
            else:
                node = next(reversed(mine))
            _take(mine, node)
        cores[j] = mine
    return Assigned(tuple(cores), tuple(totals), assigned.threshold_bytes_per_s, assigned.short)


def _take(cores: dict[int, int], node: int) -> None:
    if cores[node] == 1:
        del cores[node]
    else:
        cores[node] -= 1


class _Local:
    """Whether every node could hold the k_j of its data-intensive executors beside what cannot leave it.

    Where not, Algorithm 1 would FAIL at this phi for certain; asking first saves that run.
    """

    def __init__(self, problem: Problem) -> None:
        self._capacity = np.array(problem.capacity_milli)
        self._pinned = np.array(problem.pinned, dtype=bool)
        self._home = np.array(problem.home)
        milli = np.array(problem.core_milli)
        self._needed = np.array(problem.allocation) * milli
        # An executor all of whose cores are on one node leaves at least the last of them there.
        self._single = np.array([next(iter(cores)) if len(cores) == 1 else -1 for cores in problem.assigned])
        self._core = milli
        self._held = np.zeros(len(self._capacity))
        for j in np.flatnonzero(self._pinned).tolist():
            for node, count in problem.assigned[j].items():
                self._held[node] += count * problem.core_milli[j]

    def may_hold(self, intensive: NDArray[np.bool_]) -> bool:
        """`intensive`: one an executor. Always true if there is none."""
        if not intensive.any():
            return True
        nodes = len(self._capacity)
        local = intensive & ~self._pinned & (self._home >= 0)
        last = ~local & ~self._pinned & (self._single >= 0)
        needed = (
            self._held
            + np.bincount(self._home[local], self._needed[local], nodes)
            + np.bincount(self._single[last], self._core[last], nodes)
        )
        return bool((needed <= self._capacity).all())


class _Work:
    """X while it is worked on."""

    def __init__(self, problem: Problem, intensive: Sequence[bool]) -> None:
        # Copied when first changed: most executors keep what they have.
        self.cores: list[Mapping[int, int]] = list(problem.assigned)
        self._own: dict[int, dict[int, int]] = {}
        self._k = problem.allocation
        self._state = problem.state_bytes
        self._milli = problem.core_milli
        self._pinned = problem.pinned
        self._intensity = problem.intensity_bytes_per_s
        self._home = problem.home
        # Without a known home there is no node to be local to.
        self._intensive = [local and home >= 0 for local, home in zip(intensive, problem.home, strict=True)]
        self._total: list[int] = []
        self._free = list(problem.capacity_milli)
        for cores, milli in zip(self.cores, self._milli, strict=True):
            total = 0
            for node, count in cores.items():
                total += count
                self._free[node] -= count * milli
            self._total.append(total)
        self._holders: list[set[int]] | None = None
        self._version = [0] * len(self.cores)
        self._donors: list[tuple[float, int, int, int]] | None = None
        for node, free in enumerate(self._free):
            if free < 0:
                self._shed(node)

    def run(self) -> bool:
        """Lines 2 to 14. False is FAIL: a data-intensive executor found no core on its node."""
        intensive = [j for j, local in enumerate(self._intensive) if local and not self._pinned[j]]
        wanting = [j for j in intensive if self._lacks_local(j)]
        for j in sorted(wanting, key=lambda j: -self._intensity[j]):
            if not self._serve_local(j):
                return False
        for j in intensive:
            if len(self.cores[j]) > 1 or self._home[j] not in self.cores[j]:
                self._leave_remote(j)
        # With those that were robbed meanwhile.
        wanting = self._short()
        for j in sorted(wanting, key=lambda j: -self._intensity[j]):
            while self._total[j] < self._k[j] and self._serve_anywhere(j):
                pass
        return True

    def run_naive(self, first_node: int) -> None:
        """Naive-EC: whatever core comes next."""
        nodes = len(self._free)
        cursor = first_node
        givers = [j for j in range(len(self.cores)) if self._over(j)]
        for j in range(len(self.cores)):
            while self._total[j] < self._k[j] and not self._pinned[j] and nodes:
                turn = (i % nodes for i in range(cursor, cursor + nodes))
                node = next((i for i in turn if self._free[i] >= self._milli[j]), None)
                if node is None:
                    found = self._next_surplus(j, givers)
                    if found is None:
                        break
                    node, giver = found
                    self._remove(giver, node)
                self._add(j, node)
                cursor = node + 1

    def answer(self, threshold_bytes_per_s: float) -> Assigned:
        """X as it is now."""
        return Assigned(tuple(self.cores), tuple(self._total), threshold_bytes_per_s, tuple(self._short()))

    def _short(self) -> list[int]:
        """E+: X_j < k_j."""
        pairs = enumerate(zip(self._total, self._k, strict=True))
        return [j for j, (total, k) in pairs if total < k and not self._pinned[j]]

    def _over(self, j: int) -> bool:
        """E-: X_j > k_j; its last core is nobody's."""
        return self._total[j] > self._k[j] and self._total[j] > 1 and not self._pinned[j]

    def _lacks_local(self, j: int) -> bool:
        return not self._pinned[j] and self.cores[j].get(self._home[j], 0) < self._k[j]

    def _serve_local(self, j: int) -> bool:
        """Lines 6 and 7: cores of its own node until it has k_j there."""
        node = self._home[j]
        while self._lacks_local(j):
            if self._free[node] < self._milli[j]:
                giver = self._local_giver(j, node)
                if giver is None:
                    return False
                self._remove(giver, node)
            self._add(j, node)
        return True

    def _local_giver(self, j: int, node: int) -> int | None:
        """j' of line 7: over-provisioned executors first, then those that are not data-intensive."""
        missing = self._milli[j] - self._free[node]
        best: tuple[bool, float, int] | None = None
        for giver in self._holding(node):
            over = self._over(giver)
            if giver == j or self._total[giver] <= 1 or self._pinned[giver] or self._milli[giver] < missing:
                continue
            if not over and self._intensive[giver]:
                continue
            here = self.cores[giver][node]
            if over and self._intensive[giver] and node == self._home[giver] and here <= self._k[giver]:
                continue  # its surplus is elsewhere: these it needs
            entry = (not over, self._minus(giver, node), giver)
            if best is None or entry < best:
                best = entry
        return None if best is None else best[2]

    def _leave_remote(self, j: int) -> None:
        """Constraint (c): all that it has is local."""
        for node in [node for node in self.cores[j] if node != self._home[j]]:
            for _ in range(self.cores[j][node]):
                self._remove(j, node)

    def _serve_anywhere(self, j: int) -> bool:
        """Line 9: one core of any node, idle or of an over-provisioned executor, at least C- + C+."""
        total, state, home, milli = self._total[j], self._state[j], self._home[j], self._milli[j]
        best: tuple[float, bool, int, int] | None = None  # cost, is remote, node, giver (-1: idle)
        near = self.cores[j] if total else ((home,) if home >= 0 else ())
        for node in near:
            plus = allocation_cost(state, total, self.cores[j][node]) if total else 0.0
            if self._free[node] >= milli:
                entry = (plus, node != home, node, -1)
                if best is None or entry < best:
                    best = entry
                continue
            missing = milli - self._free[node]
            for giver in self._holding(node):
                if self._over(giver) and self._milli[giver] >= missing and giver != j:
                    entry = (plus + self._minus(giver, node), node != home, node, giver)
                    if best is None or entry < best:
                        best = entry
        plus = allocation_cost(state, total, 0)
        if best is None or best[0] >= plus:
            far = self._cheapest_far(home, milli)
            if far is not None:
                minus, node, giver = far
                entry = (plus + minus, node != home, node, giver)
                if best is None or entry < best:
                    best = entry
        if best is None:
            return False
        _, _, node, giver = best
        if giver >= 0:
            self._remove(giver, node)
        self._add(j, node)
        return True

    def _cheapest_far(self, home: int, milli: int) -> tuple[float, int, int] | None:
        """(C-, node, giver) where the executor may have no core yet: an idle core at home, then on the node
        with most of them, which leaves other nodes to their own executors; then the core that is cheapest to
        take."""
        free = self._free
        if home >= 0 and free[home] >= milli:
            return 0.0, home, -1
        most = max(free, default=0)
        if most >= milli:
            return 0.0, free.index(most), -1
        if self._donors is None:
            self._donors = [
                (self._minus(j, node), node, j, self._version[j])
                for j in range(len(self.cores))
                if self._over(j)
                for node in self.cores[j]
            ]
            heapify(self._donors)
        unfit = []
        found = None
        while self._donors and found is None:
            minus, node, giver, version = self._donors[0]
            if version != self._version[giver]:
                heappop(self._donors)
            elif free[node] + self._milli[giver] < milli:
                unfit.append(heappop(self._donors))
            else:
                found = minus, node, giver
        for entry in unfit:
            heappush(self._donors, entry)
        return found

    def _next_surplus(self, j: int, givers: Sequence[int]) -> tuple[int, int] | None:
        """(node, giver) of the first over-provisioned executor."""
        for giver in givers:
            if self._over(giver):
                for node in self.cores[giver]:
                    if self._free[node] + self._milli[giver] >= self._milli[j]:
                        return node, giver
        return None

    def _shed(self, node: int) -> None:
        """A node that has more cores assigned than it has (constraint a): the cheapest go, last cores
        stay."""
        while self._free[node] < 0:
            givers = [j for j in self._holding(node) if self._total[j] > 1 and not self._pinned[j]]
            if not givers:
                return
            self._remove(min(givers, key=lambda j: (not self._over(j), self._minus(j, node), j)), node)

    def _minus(self, j: int, node: int) -> float:
        return deallocation_cost(self._state[j], self._total[j], self.cores[j][node])

    def _holding(self, node: int) -> set[int]:
        """Executors with a core on `node`."""
        if self._holders is None:
            self._holders = [set() for _ in self._free]
            for j, cores in enumerate(self.cores):
                for i in cores:
                    self._holders[i].add(j)
        return self._holders[node]

    def _mine(self, j: int) -> dict[int, int]:
        if j not in self._own:
            self._own[j] = dict(self.cores[j])
            self.cores[j] = self._own[j]
        return self._own[j]

    def _add(self, j: int, node: int) -> None:
        cores = self._mine(j)
        cores[node] = cores.get(node, 0) + 1
        if self._holders is not None:
            self._holders[node].add(j)
        self._free[node] -= self._milli[j]
        self._total[j] += 1
        self._changed(j)

    def _remove(self, j: int, node: int) -> None:
        cores = self._mine(j)
        _take(cores, node)
        if self._holders is not None and node not in cores:
            self._holders[node].discard(j)
        self._free[node] += self._milli[j]
        self._total[j] -= 1
        self._changed(j)

    def _changed(self, j: int) -> None:
        """All C- of j are others now: what the heap holds of it is void."""
        self._version[j] += 1
        if self._donors is not None and self._over(j):
            for node in self.cores[j]:
                heappush(self._donors, (self._minus(j, node), node, j, self._version[j]))
