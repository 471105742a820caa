from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from clocks.running import run
from penstock_operator.cluster.kubernetes_api.fenced import FencedCluster
from penstock_operator.cluster.kubernetes_api.lease import STRANGER, Elector, LeaseLost, LeaseTimes
from penstock_operator.cluster.kubernetes_api.port import (
    LEASES,
    SCHEDULES,
    Kind,
    Object,
    ObjectInvalid,
    Refusal,
    Why,
    uid_of,
)
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds import cluster_objects as objects

NAME = "penstock-operator"


class Scene:
    """A cluster, a clock that is moved by hand, and candidates."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.cluster = MemoryCluster(clock_s=lambda: self.now_s)

    def candidate(
        self,
        identity: str,
        skew_s: float = 0.0,
        times: LeaseTimes = LeaseTimes(),  # noqa: B008 - frozen
        clock_s: Callable[[], float] | None = None,
        is_working: Callable[[], bool] = lambda: True,
        renewed: Callable[[], object] = lambda: None,
    ) -> Elector:
        async def least_term() -> int:
            held = (await self.cluster.list(SCHEDULES)).items
            return max((int(one["spec"]["term"]) for one in held), default=0)

        return Elector(
            self.cluster,
            NAME,
            identity,
            least_term,
            clock_s=clock_s or (lambda: self.now_s + skew_s),
            wall_time=lambda: datetime.fromtimestamp(self.now_s + skew_s, UTC),
            times=times,
            is_working=is_working,
            renewed=renewed,
        )

    async def holder(self) -> tuple[str, int]:
        spec = (await self.cluster.get(LEASES, NAME) or {})["spec"]
        return spec["holderIdentity"], spec["leaseTransitions"]


Story = Callable[[Scene], Coroutine[Any, Any, None]]


def tell(story: Story) -> None:
    run(story(Scene()))


def test_the_first_candidate_leads_in_term_1_and_the_second_waits() -> None:
    async def story(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        assert await one.try_once()
        assert not await two.try_once()
        assert (one.term, two.term) == (1, None)
        assert one.may_act()
        assert not two.may_act()

    tell(story)


def test_a_leader_that_renews_is_never_overtaken() -> None:
    async def story(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        await one.try_once()
        for _ in range(20):
            scene.now_s += 4
            assert await one.try_once()
            assert not await two.try_once()

    tell(story)


def test_a_silent_leader_is_followed_after_the_leases_duration_with_the_next_term() -> None:
    async def story(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        await one.try_once()
        assert not await two.try_once()
        scene.now_s += 14.9
        assert not await two.try_once()
        scene.now_s += 0.2
        assert not one.may_act()
        assert await two.try_once()
        assert await scene.holder() == ("two", 2)
        assert two.term == 2

    tell(story)


def test_clocks_that_differ_by_hours_change_nothing() -> None:
    async def story(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two", skew_s=7200)
        await one.try_once()
        assert not await two.try_once()
        scene.now_s += 10
        assert not await two.try_once()
        scene.now_s += 5
        assert await two.try_once()

    tell(story)


def test_a_leader_that_finds_its_lease_stolen_ends() -> None:
    async def story(scene: Scene) -> None:
        one = scene.candidate("one")
        await one.try_once()
        lease = await scene.cluster.get(LEASES, NAME)
        assert lease is not None
        lease["spec"] |= {"holderIdentity": "thief", "leaseTransitions": 2}
        await scene.cluster.replace(LEASES, lease)
        with pytest.raises(LeaseLost, match="thief"):
            await one.try_once()

    tell(story)


def test_two_who_see_a_free_lease_do_not_both_get_it() -> None:
    async def story(scene: Scene) -> None:
        one, two, three = (scene.candidate(name) for name in ("one", "two", "three"))
        await one.try_once()
        await one.release()
        lease = await scene.cluster.get(LEASES, NAME)
        assert await two.try_once()
        # What `three` would write from the same look.
        assert lease is not None
        refusal = await scene.cluster.replace(LEASES, lease)
        assert isinstance(refusal, Refusal)
        assert refusal.why is Why.CHANGED
        assert not await three.try_once()

    tell(story)


def test_a_lease_is_given_away_above_all_terms_that_were_seen() -> None:
    """As where an older state of the cluster was restored, and stores have seen later terms."""

    async def story(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        assert await one.acquire() == 1
        one.saw_term(7)
        one.saw_term(3)
        await one.release()
        assert await scene.holder() == ("", 7)
        assert await two.acquire() == 8

    tell(story)


def test_a_released_lease_is_taken_at_once() -> None:
    async def story(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        await one.try_once()
        await one.release()
        assert not one.may_act()
        assert await two.try_once()
        assert two.term == 2

    tell(story)


def test_a_leader_without_an_answer_stops_before_anyone_may_follow() -> None:
    async def story(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        await one.try_once()
        await two.try_once()
        scene.now_s += 10
        assert not one.may_act()
        with pytest.raises(LeaseLost, match="in time"):
            await one.try_once()
        assert not await two.try_once()

    tell(story)


def test_a_leader_that_slept_does_not_act_and_its_old_schedule_writes_are_refused() -> None:
    async def story(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        await one.try_once()
        await two.try_once()
        made = await scene.cluster.create(SCHEDULES, objects.schedule(term=one.term, version=1))
        assert isinstance(made, dict)
        # `one` is stopped here, having decided on what it saw; the world goes on without it.
        scene.now_s += 60
        assert await two.try_once()
        theirs = {**made, "spec": {**made["spec"], "term": two.term, "version": 2}}
        assert isinstance(await scene.cluster.replace(SCHEDULES, theirs), dict)
        # It wakes: the fence holds it.
        mine = {**made, "spec": {**made["spec"], "version": 2}}
        with pytest.raises(LeaseLost):
            await FencedCluster(scene.cluster, one.may_act).replace(SCHEDULES, mine)
        # Had it slept between the fence and the write, the version holds it; had it read anew, the term.
        refusal = await scene.cluster.replace(SCHEDULES, mine)
        assert isinstance(refusal, Refusal)
        assert refusal.why is Why.CHANGED
        now = await scene.cluster.get(SCHEDULES, made["metadata"]["name"])
        assert now is not None
        with pytest.raises(ObjectInvalid, match="term only grows"):
            await scene.cluster.replace(
                SCHEDULES, {**now, "spec": {**now["spec"], "term": one.term, "version": 3}}
            )
        with pytest.raises(LeaseLost):
            await one.try_once()

    tell(story)


async def delete_lease(scene: Scene) -> None:
    lease = await scene.cluster.get(LEASES, NAME)
    assert lease is not None
    await scene.cluster.delete(LEASES, NAME, uid_of(lease))


def test_a_deleted_lease_begins_above_every_schedules_term() -> None:
    async def story(scene: Scene) -> None:
        await scene.cluster.create(SCHEDULES, objects.schedule(term=41))
        one = scene.candidate("one")
        assert await one.try_once() is None
        scene.now_s += 15
        assert await one.try_once() == 42
        await delete_lease(scene)
        with pytest.raises(LeaseLost, match="nobody"):
            await one.try_once()

    tell(story)


@pytest.mark.parametrize("is_fresh", [False, True], ids=["one who saw it", "one who came later"])
def test_who_follows_after_a_lease_was_deleted_never_leads_in_a_term_or_at_a_time_of_the_leader_before(
    is_fresh: bool,
) -> None:
    """The leader's term stands in the Lease alone: it has had no reason yet to write a Schedule."""

    async def story(scene: Scene) -> None:
        for name in ("zero", "one"):
            one = scene.candidate(name)
            await one.try_once()
            if name == "zero":
                await one.release()
        assert one.term == 2
        made = await scene.cluster.create(SCHEDULES, objects.schedule(term=1, version=1))
        assert isinstance(made, dict)
        two = scene.candidate("two")
        if not is_fresh:
            assert await two.try_once() is None
        await delete_lease(scene)
        led = 0.0
        while await two.try_once() is None:
            if one.may_act():
                led = scene.now_s
                # what it decided before it knows
                now = await scene.cluster.get(SCHEDULES, made["metadata"]["name"])
                assert now is not None
                spec = {**now["spec"], "term": one.term, "version": now["spec"]["version"] + 1}
                assert isinstance(await scene.cluster.replace(SCHEDULES, {**now, "spec": spec}), dict)
            scene.now_s += 1
            assert scene.now_s < 1100
        assert not one.may_act()
        assert led > 1000
        assert (two.term, one.term) == (3, 2)
        with pytest.raises(LeaseLost):
            await one.try_once()

    tell(story)


def test_a_leader_whose_lease_was_deleted_and_made_anew_ends_at_its_next_try() -> None:
    async def story(scene: Scene) -> None:
        one, two = scene.candidate("one"), scene.candidate("two")
        await one.try_once()
        await two.try_once()
        await delete_lease(scene)
        assert await two.try_once() is None
        assert await scene.holder() == (STRANGER, 1)
        with pytest.raises(LeaseLost, match=STRANGER):
            await one.try_once()
        scene.now_s += 15
        assert await two.try_once() == 2

    tell(story)


FAST = LeaseTimes(duration_s=0.3, renew_deadline_s=0.2, retry_s=0.01)


def test_a_standby_outlasts_an_api_server_that_is_away() -> None:
    async def story(scene: Scene) -> None:
        one = scene.candidate("one", times=FAST)
        scene.cluster.is_away = True
        asyncio.get_running_loop().call_later(0.02, setattr, scene.cluster, "is_away", False)
        assert await one.acquire() == 1

    tell(story)


def test_a_leader_holds_until_the_api_server_is_away_for_longer_than_the_deadline() -> None:
    async def story(scene: Scene) -> None:
        one = scene.candidate("one", times=FAST, clock_s=time.monotonic)
        await one.acquire()
        asyncio.get_running_loop().call_later(0.1, setattr, scene.cluster, "is_away", True)
        began_s = time.monotonic()
        with pytest.raises(LeaseLost):
            await one.hold()
        assert time.monotonic() - began_s >= 0.1

    tell(story)


def test_a_leader_that_does_not_work_is_renewed_no_more_and_followed() -> None:
    async def story(scene: Scene) -> None:
        works = True
        one = scene.candidate("one", times=FAST, clock_s=time.monotonic, is_working=lambda: works)
        two = scene.candidate("two", times=FAST, clock_s=time.monotonic)
        await one.acquire()
        works = False
        with pytest.raises(LeaseLost, match="does not work"):
            await one.hold()
        assert not one.may_act()
        assert await two.acquire() == 2

    tell(story)


def test_a_renewal_that_comes_long_after_it_was_due_counts_as_late() -> None:
    async def story(scene: Scene) -> None:
        one = scene.candidate("one")
        for pause_s in (0.0, 2.0, 2.0, 3.5, 2.0):
            scene.now_s += pause_s
            await one.try_once()
        assert (one.renewals, one.late) == (4, 1)

    tell(story)


def test_each_renewal_is_told_and_a_try_that_failed_is_not() -> None:
    async def story(scene: Scene) -> None:
        told: list[int] = []

        def renewed() -> None:
            told.append(one.renewals)
            scene.cluster.is_away = len(told) == 3

        one = scene.candidate("one", times=FAST, clock_s=time.monotonic, renewed=renewed)
        await one.acquire()
        with pytest.raises(LeaseLost):
            await one.hold()
        assert told == [1, 2, 3]

    tell(story)


def test_a_try_that_hangs_leaves_time_for_another_one() -> None:
    class HangsOnce(MemoryCluster):
        hangs = False

        async def get(self, kind: Kind, name: str) -> Object | None:
            if self.hangs:
                self.hangs = False
                await asyncio.Event().wait()
            return await super().get(kind, name)

    async def story(scene: Scene) -> None:
        scene.cluster = cluster = HangsOnce(clock_s=time.time)
        enough = asyncio.Event()
        one = scene.candidate(
            "one",
            times=LeaseTimes(duration_s=3.0, renew_deadline_s=2.0, retry_s=0.05),
            clock_s=time.monotonic,
            renewed=lambda: one.renewals >= 3 and enough.set(),
        )
        await one.acquire()
        cluster.hangs = True
        holding = asyncio.create_task(one.hold())
        await asyncio.wait({holding, asyncio.create_task(enough.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert not holding.done()
        assert one.may_act()
        holding.cancel()

    tell(story)
