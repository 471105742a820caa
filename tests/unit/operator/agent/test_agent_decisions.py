"""What a node agent decides: births, reports, publishing, farewells, syncing. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import PermanentError
from penstock.schedule.record import AppliedPlace
from penstock_operator.agent.applied_status import applied_entry, field_manager, with_applied
from penstock_operator.agent.decisions import (
    Farewell,
    Standing,
    Step,
    born_shards,
    confirmed_version,
    counted_by_nobody,
    farewell,
    report_for,
    step_for,
    wants_fsync,
)
from penstock_operator.agent.schedule_feed import ScheduleCache, SeenSchedule, Snapshot, seen_schedule
from penstock_operator.agent.settings import settings_from
from worlds.schedule_objects import UID, item


def told(version: int, generation: int = 1, node: str = "a") -> dict[str, Any]:
    return applied_entry(AppliedPlace(node, version, generation))


def step(seen: SeenSchedule, standing: Standing, node: str = "a") -> Step:
    return step_for(seen, node, standing)


# --- births


def test_shards_born_here_are_made_first_then_reported_then_published() -> None:
    seen = seen_schedule(item(3, fresh_since=3))
    assert step(seen, Standing()) == Step(create=("mid/0",))
    made = Standing(created=3)
    assert step(seen, made) == Step()
    report = report_for(seen, "a", 1, made, 0, 0)
    assert report == AppliedPlace("a", 3, 1)
    assert step(seen, Standing(created=3, reported=report)) == Step(publish=True)
    assert step(seen, Standing(created=3, published=3, reported=report)) == Step()


def test_what_was_confirmed_is_never_made_anew() -> None:
    seen = seen_schedule(item(4, fresh_since=3, applied=(told(3),)))
    assert step(seen, Standing()) == Step(publish=True)
    assert born_shards(seen.schedule, "a", confirmed_version(seen, "a", Standing())) == ("mid/0",)


def test_another_nodes_report_confirms_nothing_here() -> None:
    seen = seen_schedule(item(3, fresh_since=3, applied=(told(3, node="b"),)))
    assert step(seen, Standing()) == Step(create=("mid/0",))


def test_a_schedule_without_births_here_is_published_at_once() -> None:
    assert step(seen_schedule(item(3)), Standing()) == Step(publish=True)
    elsewhere = seen_schedule(item(3, fresh_since=3, homes={"0": "b"}))
    assert step(elsewhere, Standing()) == Step(publish=True)


def test_a_store_that_was_started_anew_is_published_to_again() -> None:
    seen = seen_schedule(item(3, fresh_since=3, applied=(told(3),)))
    assert step(seen, Standing(reported=AppliedPlace("a", 3, 1))) == Step(publish=True)


# --- reports


def test_nothing_is_reported_before_anything_is_done() -> None:
    assert report_for(seen_schedule(item(3)), "a", 1, Standing(), 0, 0) is None


def test_a_report_is_made_only_when_it_is_news() -> None:
    seen = seen_schedule(item(3, applied=(told(3, 2),)))
    done = Standing(published=3)
    assert report_for(seen, "a", 2, done, 0, 0) is None
    assert report_for(seen, "a", 3, done, 0, 0) == AppliedPlace("a", 3, 3)
    assert report_for(seen, "a", 2, done, 1, 0) == AppliedPlace("a", 3, 2, lost_shards=1)
    assert report_for(seen, "a", 2, done, 0, 4) == AppliedPlace("a", 3, 2, shards_moving=4)
    newer = Standing(published=3, reported=AppliedPlace("a", 3, 3))
    assert report_for(seen, "a", 3, newer, 0, 0) is None


def test_a_reported_version_never_goes_back() -> None:
    seen = seen_schedule(item(3, applied=(told(5),)))
    assert report_for(seen, "a", 1, Standing(published=3), 0, 0) is None


def test_a_node_that_the_schedule_does_not_name_says_nothing() -> None:
    seen = seen_schedule(item(3))
    assert report_for(seen, "c", 1, Standing(published=3), 0, 0) is None
    known = seen_schedule(item(3, applied=(told(2, node="c"),)))
    assert report_for(known, "c", 1, Standing(published=3), 0, 0) == AppliedPlace("c", 3, 1)


def test_a_nodes_entry_leaves_the_others_alone() -> None:
    status = with_applied({"applied": [told(3), told(2, node="b")]}, AppliedPlace("b", 3, 7))
    assert status == {"applied": [told(3), told(3, 7, node="b")]}


def test_the_field_manager_names_the_node_and_fits() -> None:
    assert field_manager("node-1") == "penstock-agent-node-1"
    long = [field_manager("n" * 200 + end) for end in "xy"]
    assert len(set(long)) == 2
    assert all(len(name) <= 128 for name in long)


# --- farewells


def snapshots(*lists: list[dict[str, Any]]) -> list[Snapshot]:
    """One for each complete list, of the same cache."""
    cache = ScheduleCache()
    return [cache.listed(items, ()) for items in lists]


def test_a_topology_is_retracted_when_two_complete_lists_lack_it() -> None:
    first, second = snapshots([], [])
    missed = farewell(first, [UID], {})
    assert missed == Farewell({UID: 1}, ())
    assert missed.must_list
    gone = farewell(second, [UID], missed.missed)
    assert gone.retract == (UID,)
    assert not gone.must_list


def test_a_topology_that_is_back_in_the_second_list_stays() -> None:
    first, second, third = snapshots([], [item()], [])
    missed = farewell(first, [UID], {})
    back = farewell(second, [UID], missed.missed)
    assert back == Farewell({}, ())
    assert farewell(third, [UID], back.missed).retract == ()


def test_two_lists_that_lack_a_topology_are_not_enough_when_one_between_them_had_it() -> None:
    """A store that is slow may keep the agent from looking at that one."""
    first, _, third, fourth = snapshots([], [item()], [], [])
    missed = farewell(first, [UID], {})
    again = farewell(third, [UID], missed.missed)
    assert again == Farewell({UID: 3}, ())
    assert farewell(fourth, [UID], again.missed).retract == (UID,)


@pytest.mark.parametrize(
    "topology", [{"metadata": {"uid": UID}}, {"metadata": {}, "status": {"stateUid": UID}}]
)
def test_a_topology_whose_schedules_are_gone_alone_keeps_its_state(topology: dict[str, Any]) -> None:
    """Somebody has deleted them: the operator rebuilds them from what the stores hold."""
    cache = ScheduleCache()
    missed = farewell(cache.listed([]), [UID], {})
    assert missed.must_list
    spared = farewell(cache.listed([], [topology]), [UID], missed.missed)
    assert spared == Farewell({UID: 1}, (), frozenset({UID}))
    assert not spared.must_list


def test_topologies_that_were_listed_before_one_was_missed_do_not_spare_it() -> None:
    """It was there then. Else its state would stay until the next list that nobody asks for."""
    topology = {"metadata": {"uid": UID}}
    cache = ScheduleCache()
    cache.listed([item()], [topology])
    missed = farewell(cache.deleted(item()), [UID], {})
    assert missed.must_list
    again = farewell(cache.listed([], ()), [UID], missed.missed)
    assert again.must_list
    assert farewell(cache.listed([], ()), [UID], again.missed).retract == (UID,)


def test_nobody_leaves_by_a_list_that_did_not_look_for_topologies() -> None:
    cache = ScheduleCache()
    missed = farewell(cache.listed([]), [UID], {})
    again = farewell(cache.listed([]), [UID], missed.missed)
    assert again.retract == ()
    assert again.must_list
    assert farewell(cache.listed([], ()), [UID], again.missed).retract == (UID,)


def test_what_lists_had_is_not_kept_for_ever() -> None:
    first, second, third = snapshots([item()], [], [])
    assert (first.listed_at, second.listed_at, third.listed_at) == ({UID: 1}, {UID: 1}, {})


def test_nobody_leaves_before_the_first_complete_list() -> None:
    assert farewell(ScheduleCache().recall([]), [UID], {UID: 0}) == Farewell({}, ())


def test_nobody_leaves_while_an_object_does_not_tell_whose_it_is() -> None:
    stranger = {"metadata": {"name": "x"}, "spec": {}}
    (_, second) = snapshots([stranger], [stranger])
    assert farewell(second, [UID], {UID: 1}) == Farewell({}, ())


def test_an_object_that_cannot_be_read_keeps_its_topology_by_its_label() -> None:
    broken = item()
    broken["spec"] = {"operator": 7}
    (_, second) = snapshots([broken], [broken])
    assert "words-mid" in second.faults
    assert farewell(second, [UID], {UID: 1}) == Farewell({}, ())


# --- syncing


@pytest.mark.parametrize(
    ("store", "topologies", "wanted"),
    [
        ("Process", ["Disk"], False),
        ("Disk", [], False),
        ("Disk", ["Process"], False),
        ("Disk", ["Process", "Disk"], True),
        ("Disk", [None], True),
    ],
)
def test_a_log_is_synced_for_topologies_that_ask_for_it(
    store: str, topologies: list[str | None], wanted: bool
) -> None:
    items = []
    for number, durability in enumerate(topologies):
        one = item(name=f"words-{number}")
        if durability:
            one["spec"]["durability"] = durability
        items.append(one)
    assert wants_fsync(ScheduleCache().listed(items), store) is wanted


def test_a_disk_store_is_synced_until_it_is_known_who_asks() -> None:
    assert wants_fsync(ScheduleCache().recall([]), "Disk")


# --- the cache


def test_a_report_of_another_node_does_not_make_a_schedule_new() -> None:
    cache = ScheduleCache()
    before = cache.listed([item(3)]).schedules["words-mid"]
    after = cache.changed(item(3, applied=(told(3, node="b"),))).schedules["words-mid"]
    assert after.schedule is before.schedule
    assert after.applied == {"b": AppliedPlace("b", 3, 1)}


def test_an_object_that_becomes_unreadable_is_told_and_not_worked_by() -> None:
    cache = ScheduleCache()
    cache.listed([item(3)])
    broken = item(4)
    broken["spec"]["shards"] = [{"executor": "nobody", "home": "a", "ranges": ["0"]}]
    snapshot = cache.changed(broken)
    assert snapshot.schedules == {}
    assert "nobody" in snapshot.faults["words-mid"]
    assert snapshot.topology_uids == {UID}


# --- settings

ENVIRONMENT = {
    "PENSTOCK_NAMESPACE": "default",
    "PENSTOCK_NODE": "node-1",
    "PENSTOCK_STORE_URL": "redis://agent@127.0.0.1:6379",
}


def test_other_stores_are_reached_as_the_same_user() -> None:
    settings = settings_from(ENVIRONMENT)
    assert (settings.store_id, settings.durability, settings.port) == ("node-1", "Process", 9091)
    assert settings.peer_url("s-0.stores.ns.svc:6379") == "redis://agent@s-0.stores.ns.svc:6379"
    plain = settings_from({**ENVIRONMENT, "PENSTOCK_STORE_URL": "redis://127.0.0.1:1"})
    assert plain.peer_url("h:2") == "redis://h:2"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"PENSTOCK_NODE": ""}, "PENSTOCK_NODE is not set"),
        ({"PENSTOCK_STORE_DURABILITY": "Tape"}, "'Tape'; it must be Process or Disk"),
        ({"PENSTOCK_AGENT_PORT": "x"}, "PENSTOCK_AGENT_PORT is 'x'; it must be a whole number"),
    ],
)
def test_a_wrong_variable_is_told_by_name(changes: dict[str, str], text: str) -> None:
    with pytest.raises(PermanentError, match=text):
        settings_from(ENVIRONMENT | changes)


# --- counted pairs


def test_counted_pairs_of_tasks_that_a_node_does_not_have_are_nobodys() -> None:
    schedule = seen_schedule(item(3)).schedule
    executor = schedule.executors[0]
    (here,) = [worker.node for worker in schedule.workers if worker.name == executor.worker]
    renewed = f"mid:end:{executor.name}:{executor.tasks - 1}"
    others = (
        f"mid:end:{executor.name}:{executor.tasks}",
        "mid:end:gone:0",
        f"end:out:{executor.name}:0",
        "what is this",
        "",
    )
    assert counted_by_nobody((renewed, *others), [schedule], here) == others
    assert counted_by_nobody((renewed,), [schedule], "elsewhere") == (renewed,)
    assert counted_by_nobody((renewed,), [], here) == (renewed,)
