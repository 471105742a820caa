from penstock_worker.task.batch_size import BatchSize


def test_a_slow_batch_halves_the_budget_from_what_was_really_read():
    size = BatchSize(target_us=8_000)
    size.observed(took_us=20_000, read_bytes=4_000, read_shards=10)
    assert (size.bytes, size.shards) == (2_000, 5)


def test_the_budget_never_falls_below_one_entry_of_one_shard():
    size = BatchSize(bytes_min=256)
    for _ in range(40):
        size.observed(took_us=1_000_000, read_bytes=size.bytes, read_shards=size.shards)
    assert (size.bytes, size.shards) == (256, 1)


def test_quick_batches_that_were_cut_off_grow_the_budget_to_its_bound():
    size = BatchSize(bytes_max=512 << 10)
    size.observed(took_us=1_000_000, read_bytes=1_000, read_shards=1)
    for _ in range(40):
        size.observed(took_us=100, read_bytes=size.bytes, read_shards=size.shards)
    assert (size.bytes, size.shards) == (512 << 10, 64)


def test_quick_batches_below_the_budget_leave_it_alone():
    size = BatchSize()
    before = size.bytes
    size.observed(took_us=100, read_bytes=10, read_shards=1)
    assert size.bytes == before


def test_rows_give_way_to_timers_before_timers_do() -> None:
    size = BatchSize()
    timers = size.timers
    while size.bytes > 256:
        size.observed(20_000, size.bytes, size.shards, timers)
        assert size.timers == timers
    for _ in range(20):
        size.observed(20_000, 256, 1, size.timers)
    assert size.timers == 1
    size.observed(1_000, 0, 0, 1)
    assert size.timers == 2
