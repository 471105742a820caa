"""What is advised where a worker finds no room fits on the nodes that there are."""

from __future__ import annotations

import random
import re

from penstock.manifest.document import cpu_millis, memory_bytes
from penstock_operator.cluster.workers.node_room import Free, Size
from penstock_operator.cluster.workers.room_advice import Asked, advice
from worlds.cluster_world_parts import GIB

MIB = GIB // 1024


def asked(cpu: int, memory: int, workers: int = 1, tasks: int = 2, least: int = 0) -> Asked:
    return Asked(Size(cpu, memory), workers, tasks, cpu // max(1, tasks), least)


def test_too_many_cores_are_answered_by_the_cores_of_a_task() -> None:
    free = [Free(700, 8 * GIB, 10), Free(400, 8 * GIB, 10)]
    assert advice(asked(2000, GIB), free) == "it would fit with taskCpu: 350m"
    assert advice(asked(2000, GIB, workers=2), free) == "all 2 would fit with taskCpu: 200m"


def test_the_least_cores_of_a_worker_are_named_where_they_are_what_asks() -> None:
    free = [Free(3500, 8 * GIB, 10)]
    assert advice(asked(899_999, GIB, tasks=1, least=900_000), free) == (
        "it would fit with taskCpu: 3500m and workers.cores.min: 3500m"
    )
    spare = Asked(Size(4000, GIB), 1, 0, 1000, 4000)
    assert advice(spare, [Free(3000, 8 * GIB, 10)]) == "it would fit with workers.cores.min: 3"


def test_too_much_memory_is_answered_by_the_memory_of_a_worker() -> None:
    free = [Free(4000, 1100 * MIB, 10)]
    assert advice(asked(2000, 2 * GIB), free) == "it would fit with workers.memory: 1088Mi"


def test_where_one_field_is_not_enough_both_are_named() -> None:
    free = [Free(600, GIB, 10)]
    assert advice(asked(2000, 2 * GIB), free) == (
        "it would fit with taskCpu: 300m and workers.memory: 1024Mi"
    )


def test_where_either_field_would_do_there_is_a_choice() -> None:
    small, narrow = Free(500, 4 * GIB, 10), Free(4000, 512 * MIB, 10)
    assert advice(asked(2000, 2 * GIB), [small, narrow]) == (
        "it would fit with taskCpu: 250m, or with workers.memory: 512Mi"
    )


def test_where_no_worker_would_fit_no_value_is_made_up() -> None:
    told = "a smaller worker would not fit either: add a node, or end something there"
    assert advice(asked(1000, GIB), [Free(60, 8 * GIB, 10)]) == told
    assert advice(asked(1000, GIB), [Free(-200, 8 * GIB, 10)]) == told
    assert advice(asked(1000, GIB), [Free(4000, 100 * MIB, 10)]) == told
    assert advice(asked(1000, GIB), [Free(4000, 8 * GIB, 0)]) == told
    assert advice(asked(1000, GIB), []) == ""


def test_whatever_is_advised_fits() -> None:
    rng = random.Random(11)
    advised = 0
    for _ in range(500):
        nodes = rng.randint(1, 4)
        free = [
            Free(rng.randint(-200, 4000), rng.randint(0, 8192) * MIB, rng.randint(0, 5)) for _ in range(nodes)
        ]
        tasks, workers = rng.randint(1, 8), rng.randint(1, 4)
        task, least = rng.randint(50, 2000), rng.randint(1, 3000)
        memory = rng.randint(256, 8192) * MIB
        before = Asked(Size(max(tasks * task, least), memory), workers, tasks, task, least)
        told = advice(before, free)
        for way in told.split(", or with ") if "would fit with" in told else []:
            values = dict(re.findall(r"([a-zA-Z.]+): (\w+)", way))
            task_now = cpu_millis(values["taskCpu"]) if "taskCpu" in values else task
            least_now = cpu_millis(values["workers.cores.min"]) if "workers.cores.min" in values else least
            memory_now = memory_bytes(values["workers.memory"]) if "workers.memory" in values else memory
            cpu_now = max(tasks * task_now, least_now)
            room = sum(
                max(0, min(node.cpu_millis // cpu_now, node.memory_bytes // memory_now, node.pods))
                for node in free
            )
            advised += 1
            assert room >= workers, way
    assert advised > 100
