from penstock.metrics.rows import ShardRow
from penstock_worker.main_process.shard_loads import ShardLoads


def row(busy_us: int, epoch: int = 1, generation: int = 1) -> ShardRow:
    return ShardRow(epoch, generation, 0, 0, busy_us, 0)


def feed(loads: ShardLoads, readings: list[tuple[int, ShardRow]]) -> int:
    for at_ms, reading in readings:
        loads.observe({"count/0": reading}, at_ms * 1000)
    return readings[-1][0] * 1000


def test_load_is_the_busy_share_of_the_last_second_only():
    loads = ShardLoads()
    now_us = feed(loads, [(0, row(0)), (1_000, row(900_000)), (2_000, row(1_000_000))])
    assert loads.last_second(["count/0"], now_us) == {"count/0": 0.1}


def test_a_change_of_epoch_or_generation_is_missing_and_not_zero():
    for changed in (row(10, epoch=2), row(10, generation=2)):
        loads = ShardLoads()
        now_us = feed(loads, [(0, row(0)), (900, row(500_000)), (1_000, changed)])
        assert loads.last_second(["count/0"], now_us) == {"count/0": None}


def test_a_shard_without_rows_has_no_load():
    assert ShardLoads().last_second(["count/9"], 5) == {"count/9": None}


def test_less_than_half_a_window_is_no_measurement():
    loads = ShardLoads()
    now_us = feed(loads, [(0, row(0)), (300, row(300_000))])
    assert loads.last_second(["count/0"], now_us) == {"count/0": None}
