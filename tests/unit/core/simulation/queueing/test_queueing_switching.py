"""What a change of hands costs and when, by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.simulation.queueing.model import InitialExecutor, Pauses, SimulatedOperator, Switching
from penstock.simulation.queueing.switching import Move, Plan, moves_of, task_moves_of


def operator(switching: Switching, state_bytes: float = 0.0) -> SimulatedOperator:
    return SimulatedOperator(
        name="o",
        shards=8,
        service_us=1_000,
        executors=(InitialExecutor("a"),),
        switching=switching,
        state_bytes=state_bytes,
    )


def plan(
    switching: Switching,
    *moves: Move,
    state_bytes: float = 0.0,
    backlogs: Mapping[int, float] | None = None,
    upstream: int = 0,
    same_node: bool = False,
    batch_us: float = 100_000,
) -> Plan:
    return moves_of(
        operator(switching, state_bytes),
        moves,
        is_same_node=lambda a, b: same_node,
        executors=(1, 2, 3, 4),
        backlog_us=lambda executor: (backlogs or {}).get(executor, 0.0),
        upstream_executors=upstream,
        batch_us=batch_us,
    )


def test_executors_stand_still_for_the_fixed_part_and_for_the_state_of_all_shards() -> None:
    switching = Switching(fixed_us=300, us_per_shard=10, us_per_byte=0.5, pauses=Pauses.EXECUTORS)
    found = plan(switching, Move((0, 1), 1, 2), state_bytes=40)
    # Fixed 300, and for each of two shards 10 and half of 40.
    assert found.ends_us == found.switching_us == 360
    assert found.bytes == 80
    (pause,) = found.pauses
    assert (pause.begins_us, pause.ends_us, pause.executors) == (0, 360, (1, 2))
    assert (pause.shards, pause.destinations) == ((0, 1), (2, 2))


def test_state_within_a_node_is_free_where_it_is_shared() -> None:
    switching = Switching(us_per_byte=1.0, copies_within_node=False, pauses=Pauses.EXECUTORS)
    assert plan(switching, Move((0,), 1, 2), state_bytes=40, same_node=True).bytes == 0
    assert plan(switching, Move((0,), 1, 2), state_bytes=40, same_node=False).bytes == 40


def test_a_barrier_waits_for_what_is_queued() -> None:
    switching = Switching(fixed_us=100, drains=True, pauses=Pauses.EXECUTORS)
    found = plan(switching, Move((0,), 1, 2), backlogs={1: 500, 2: 700})
    assert (found.pauses[0].begins_us, found.pauses[0].ends_us) == (700, 800)


def test_moves_of_other_executors_go_on_side_by_side_and_of_the_same_one_after_another() -> None:
    switching = Switching(fixed_us=100, pauses=Pauses.EXECUTORS)
    found = plan(switching, Move((0,), 1, 2), Move((1,), 3, 4), Move((2,), 2, 3))
    assert [(pause.begins_us, pause.ends_us) for pause in found.pauses] == [(0, 100), (0, 100), (100, 200)]
    assert (found.ends_us, found.switching_us) == (200, 300)


def test_resource_centric_repartitioning_stops_everybody_at_once() -> None:
    switching = Switching(fixed_us=100, us_per_upstream=10, us_per_byte=1.0, pauses=Pauses.OPERATOR)
    found = plan(switching, Move((0, 1), 1, 2), Move((2,), 3, 4), state_bytes=7, upstream=32)
    (pause,) = found.pauses
    # 100 + 10 * 32 + the two shards of executor 1
    assert (pause.begins_us, pause.ends_us) == (0, 434)
    assert pause.executors == (1, 2, 3, 4)
    assert pause.destinations == (2, 2, 4)


def test_shards_alone_pause_one_after_another_each_for_its_own_part() -> None:
    switching = Switching(fixed_us=50, us_per_shard=2_000)
    found = plan(switching, Move((0, 1, 2), 1, 2), batch_us=2_000)
    assert [(pause.begins_us, pause.ends_us) for pause in found.pauses] == [
        (50, 2_050),
        (2_050, 4_050),
        (4_050, 6_050),
    ]
    assert found.ends_us == 6_050


def test_many_short_pauses_are_taken_together_in_their_middle() -> None:
    switching = Switching(us_per_shard=2_000)
    (pause,) = plan(switching, Move(tuple(range(5)), 1, 2), batch_us=10_000).pauses
    # Five of 2 ms take 10 ms; each stands still for 2 ms, around 5 ms.
    assert (pause.begins_us, pause.ends_us) == (4_000, 6_000)


def test_state_goes_with_a_shard_to_a_task_on_another_node_only() -> None:
    switching = Switching(task_us_per_shard=2_000, us_per_byte=1.0)
    found = task_moves_of(
        operator(switching, state_bytes=500), [3, 4], [7, 8], [False, True], batch_us=100_000
    )
    assert found.bytes == 500
    assert [(p.ends_us - p.begins_us, p.shards, p.servers) for p in found.pauses] == [
        (2_000, (3,), (7,)),
        (2_500, (4,), (8,)),
    ]
    assert found.ends_us == pytest.approx(4_500)


def test_no_move_is_no_pause() -> None:
    assert plan(Switching(fixed_us=100)) == Plan()
