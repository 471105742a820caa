"""The NEXMark generator: the benchmark's proportions, times and references between its streams, and the same
events from every position, by however many partitions."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.nexmark import SCHEMAS, NexmarkSource, Stream
from penstock_worker.kinds.sources import open_reader
from penstock_worker.sources.nexmark import BLOCK_ROWS, NexmarkReader
from penstock_worker.sources.reader import SourceBatch

NOW_US = 1_700_000_000_000_000
START_US = 1_436_918_400_000_000
MANY = 1 << 40
PLAIN = NexmarkSource("Bids", 20_000, 10_000, START_US // 1000, None, 1, 7)
STREAMS: tuple[Stream, ...] = get_args(Stream)

Row = dict[str, Any]


def read_all(source: NexmarkSource, partition: int = 0) -> list[tuple[Any, ...]]:
    reader = NexmarkReader("gen", source)
    shard = f"gen/{partition}"
    reader.open(shard, b"", NOW_US)
    batch = reader.read(shard, b"", MANY, MANY, NOW_US + 10**15)
    assert batch.finished
    return batch.rows


def events(stream: Stream, source: NexmarkSource = PLAIN) -> list[Row]:
    """All rows of one stream by their columns' names."""
    names = SCHEMAS[stream].names
    return [dict(zip(names, row, strict=True)) for row in read_all(replace(source, stream=stream))]


# --- the benchmark's rules --------------------------------------------------------------------------


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    assert [len(events(stream)) for stream in STREAMS] == [400, 1200, 18_400]
    few = replace(PLAIN, events=53)
    assert [len(events(stream, few)) for stream in STREAMS] == [2, 5, 46]


def test_times_follow_from_the_numbers_of_events_and_the_beginning_alone() -> None:
    numbers = {
        "Persons": [0, 50, 100],
        "Auctions": [1, 2, 3, 51, 52, 53, 101],
        "Bids": [*range(4, 50), *range(54, 100), 104],
    }
    # 300 events a second: whole milliseconds, rounded down.
    for source in (PLAIN, replace(PLAIN, events_per_s=300, start_ms=5, seed=9)):
        for stream in STREAMS:
            times_us = [row["dateTime"] for row in events(stream, source)[: len(numbers[stream])]]
            assert times_us == [
                1000 * (source.start_ms + number * 1000 // source.events_per_s) for number in numbers[stream]
            ]


def test_persons_and_auctions_are_numbered_from_1000_on() -> None:
    assert [row["id"] for row in events("Persons")] == list(range(1000, 1400))
    assert [row["id"] for row in events("Auctions")] == list(range(1000, 2200))


def test_a_bid_is_on_an_auction_in_flight_or_on_one_of_the_next_ten() -> None:
    auctions = [row["dateTime"] for row in events("Auctions")]
    bids = events("Bids")
    hot, ahead = 0, 0
    for index, bid in enumerate(bids):
        last = 3 * (index // 46) + 2
        auction = bid["auction"] - 1000
        assert auction == last // 100 * 100 or last - 100 <= auction <= last + 10
        assert auction >= 0
        hot += auction == last // 100 * 100
        ahead += auction > last
        assert auction > last or auctions[auction] <= bid["dateTime"]
    assert hot / len(bids) == pytest.approx(0.5, abs=0.02)
    assert 0 < ahead / len(bids) < 0.1


def test_a_bidder_is_an_active_person_or_one_of_the_next_ten_or_a_hot_one() -> None:
    source = replace(PLAIN, active_people=50)
    bids = events("Bids", source)
    hot = 0
    for index, bid in enumerate(bids):
        last = index // 46
        bidder = bid["bidder"] - 1000
        assert bidder == last // 100 * 100 + 1 or max(0, last - 49) <= bidder <= last + 10
        hot += bidder == last // 100 * 100 + 1
    assert hot / len(bids) == pytest.approx(0.75, abs=0.03)


def test_a_seller_is_an_active_person_or_a_hot_one_that_is_no_hot_bidder() -> None:
    auctions = events("Auctions")
    hot = 0
    for index, auction in enumerate(auctions):
        last = index // 3
        seller = auction["seller"] - 1000
        assert 0 <= seller <= last + 10
        hot += seller == last // 100 * 100
    assert hot / len(auctions) == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize(("ratio", "share"), [(1, 0.0), (10, 0.9)])
def test_the_ratio_says_how_many_bids_are_on_hot_auctions(ratio: int, share: float) -> None:
    hot = sum(
        bid["auction"] - 1000 == (3 * (index // 46) + 2) // 100 * 100
        for index, bid in enumerate(events("Bids", replace(PLAIN, hot_auction_ratio=ratio)))
    )
    assert hot / 18_400 == pytest.approx(share, abs=0.03)


def test_an_auction_lasts_on_average_as_long_as_so_many_begin() -> None:
    lasts_us = [row["expires"] - row["dateTime"] for row in events("Auctions")]
    # 100 auctions are 1 666 events, or 166 ms.
    assert min(lasts_us) >= 1000
    assert max(lasts_us) <= 2 * 167_000
    assert statistics.fmean(lasts_us) == pytest.approx(167_000, rel=0.05)


def test_prices_are_even_in_their_powers_and_reserves_above_the_first_bid() -> None:
    prices = [row["price"] for row in events("Bids")]
    assert 100 <= min(prices) < 110
    assert 9e7 < max(prices) <= 1e8
    assert statistics.median(prices) == pytest.approx(100_000, rel=0.1)
    assert all(row["reserve"] - row["initialBid"] >= 100 for row in events("Auctions"))
    assert {row["category"] for row in events("Auctions")} == set(range(10, 15))


def test_extra_fills_events_up_to_the_benchmarks_sizes() -> None:
    def bytes_of(row: Row, besides: int) -> int:
        return besides + sum(len(value) for value in row.values() if isinstance(value, str))

    assert statistics.fmean(bytes_of(row, 8) for row in events("Persons")) == pytest.approx(200, rel=0.03)
    assert statistics.fmean(bytes_of(row, 48) for row in events("Auctions")) == pytest.approx(500, rel=0.03)
    assert statistics.fmean(32 + len(row["extra"]) for row in events("Bids")) == pytest.approx(100, rel=0.03)


def test_half_of_the_bids_come_by_four_channels_and_an_address_tells_its_channel() -> None:
    bids = events("Bids")
    channels = Counter(row["channel"] for row in bids)
    hot = sum(channels[name] for name in ("Google", "Facebook", "Baidu", "Apple"))
    assert hot / len(bids) == pytest.approx(0.5, abs=0.02)
    addresses: dict[str, set[str]] = {}
    for row in bids:
        assert row["url"].startswith("https://www.nexmark.com/")
        addresses.setdefault(row["channel"], set()).add(row["url"])
    assert all(len(found) == 1 for found in addresses.values())
    told = [name for name, (url,) in addresses.items() if "&channel_id=" in url]
    assert len(told) / len(addresses) == pytest.approx(0.9, abs=0.03)


def test_a_person_looks_like_one() -> None:
    for row in events("Persons"):
        assert len(row["name"].split()) == 2
        user, host = row["emailAddress"].split("@")
        assert 3 <= len(user) < 7
        assert 3 <= len(host.removesuffix(".com")) < 5
        assert [len(four) for four in row["creditCard"].split()] == [4] * 4
        assert len(row["state"]) == 2


# --- out of order -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("group", [50, 1000])
def test_events_out_of_order_are_those_in_order_within_their_groups(stream: Stream, group: int) -> None:
    ordered, mixed = events(stream), events(stream, replace(PLAIN, out_of_order_group=group))
    rows = len(ordered) * group // 20_000
    for begin in range(0, len(ordered), rows):
        there, here = ordered[begin : begin + rows], mixed[begin : begin + rows]
        assert sorted(map(str, here)) == sorted(map(str, there))
    assert stream == "Persons" or mixed != ordered


# --- positions and partitions -----------------------------------------------------------------------


@given(st.sampled_from(STREAMS), st.lists(st.integers(1, 1100), min_size=1, max_size=3))
def test_rows_do_not_depend_on_how_they_are_read(stream: Stream, counts: list[int]) -> None:
    source = replace(PLAIN, stream=stream, events=None, partitions=2)
    whole = NexmarkReader("gen", source)
    whole.open("gen/1", b"", NOW_US)
    expected = whole.read("gen/1", b"", sum(counts), MANY, NOW_US).rows
    position, seen = b"", []
    for count in counts:
        reader = NexmarkReader("gen", source)
        reader.open("gen/1", position, NOW_US)
        batch = reader.read("gen/1", position, count, MANY, NOW_US)
        assert reader.read("gen/1", position, count, MANY, NOW_US) == batch
        position = batch.position
        seen += batch.rows
    assert seen == expected


@pytest.mark.parametrize("stream", STREAMS)
def test_partitions_take_turns_and_give_the_events_of_one(stream: Stream) -> None:
    source = replace(PLAIN, stream=stream)
    parts = [read_all(replace(source, partitions=3), partition) for partition in range(3)]
    whole = read_all(source)
    assert [whole[number::3] for number in range(3)] == parts


def test_seeds_give_other_events_at_the_same_times() -> None:
    ours, theirs = events("Bids"), events("Bids", replace(PLAIN, seed=8))
    assert [row["dateTime"] for row in ours] == [row["dateTime"] for row in theirs]
    assert sum(ours[n]["price"] == theirs[n]["price"] for n in range(1000)) < 10


def test_a_partition_is_finished_with_its_last_event_or_at_once_without_one() -> None:
    reader = NexmarkReader("gen", replace(PLAIN, events=5, partitions=2, rate_per_s=10.0))
    reader.open("gen/0", b"", NOW_US)
    batch = reader.read("gen/0", b"", MANY, MANY, NOW_US + 10**9)
    assert (len(batch.rows), batch.finished) == (1, True)
    assert reader.read("gen/0", batch.position, MANY, MANY, NOW_US + 10**9) == SourceBatch(
        [], [], batch.position, finished=True, next_due_us=None
    )
    reader.open("gen/1", b"", NOW_US)
    assert reader.read("gen/1", b"", MANY, MANY, NOW_US).finished


def test_an_endless_generator_ends_before_the_years_do_that_spark_knows() -> None:
    reader = NexmarkReader("gen", replace(PLAIN, stream="Auctions", events=None, events_per_s=1))
    reader.open("gen/0", b"", NOW_US)
    # Three auctions in 50 s, from the middle of 2015 to the year 9000.
    about = 3 * (9000 - 2015) * 31_556_952 // 50
    (row,) = reader.read("gen/0", msgspec.msgpack.encode(about - 2 * 10**6), 1, MANY, NOW_US).rows
    assert 8998 < 1970 + row[6] / 1e6 / 31_556_952 < 9001
    assert reader.read("gen/0", msgspec.msgpack.encode(about), 1, MANY, NOW_US).finished


def test_a_batch_keeps_to_its_budget_in_bytes() -> None:
    reader = NexmarkReader("gen", PLAIN)
    reader.open("gen/0", b"", NOW_US)
    assert len(reader.read("gen/0", b"", 10_000, 17_000, NOW_US).rows) == 100
    assert len(reader.read("gen/0", b"", 10_000, 1, NOW_US).rows) == 1
    assert len(reader.read("gen/0", b"", 3 * BLOCK_ROWS, MANY, NOW_US).rows) == 3 * BLOCK_ROWS


# --- pace -------------------------------------------------------------------------------------------


def paced(source: NexmarkSource, until_us: int, folder: Path, step_us: int = 100) -> list[int]:
    """When rows of all partitions are due, from NOW_US on, of those that a task gets by then."""
    stamps = []
    for partition in range(source.partitions):
        reader = open_reader("gen", source, folder)
        assert reader.paced
        shard, position = f"gen/{partition}", b""
        reader.open(shard, position, NOW_US)
        for now_us in range(NOW_US, NOW_US + until_us, step_us):
            batch = reader.read(shard, position, MANY, MANY, now_us)
            position = batch.position
            assert all(stamp <= now_us for stamp in batch.timestamps_us), "no row comes before it is due"
            assert batch.next_due_us is None or batch.next_due_us > now_us, "all that is due is given"
            stamps += [stamp - NOW_US for stamp in batch.timestamps_us]
    return sorted(stamps)


@pytest.mark.parametrize("partitions", [1, 3])
def test_three_sources_of_a_rate_give_each_event_when_it_is_due(partitions: int, tmp_path: Path) -> None:
    source = replace(PLAIN, rate_per_s=10_000.0, partitions=partitions)
    found = {stream: paced(replace(source, stream=stream), 20_000, tmp_path) for stream in STREAMS}
    assert found["Persons"] == [0, 5000, 10_000, 15_000]
    assert found["Auctions"][:4] == [100, 200, 300, 5100]
    assert sorted(stamp for stamps in found.values() for stamp in stamps) == list(range(0, 20_000, 100))


def test_a_trace_counts_the_events_of_the_whole_generator(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("0,10000\n0.01,20000\n0.02,0\n")
    source = replace(PLAIN, rate_trace="rates.csv", partitions=2)
    found = [stamp for s in STREAMS for stamp in paced(replace(source, stream=s), 30_000, tmp_path)]
    expected = [100 * n for n in range(100)] + [10_000 + 50 * n for n in range(200)]
    assert max(abs(a - b) for a, b in zip(sorted(found), expected, strict=True)) <= 1


def test_a_resumed_partition_counts_from_the_moment_it_resumes() -> None:
    source = replace(PLAIN, stream="Auctions", rate_per_s=10_000.0)
    reader = NexmarkReader("gen", source)
    reader.open("gen/0", b"", NOW_US)
    first = reader.read("gen/0", b"", MANY, MANY, NOW_US + 5150)
    assert len(first.rows) == 4
    reader.release("gen/0")
    later_us = NOW_US + 10**9
    reader.open("gen/0", first.position, later_us)
    second = reader.read("gen/0", first.position, MANY, MANY, later_us + 1000)
    assert second.timestamps_us == [later_us + 100, later_us + 200]
    assert second.next_due_us == later_us + 100 + 4900
    reader.close()


def test_a_trace_that_was_made_longer_has_more(tmp_path: Path) -> None:
    trace = tmp_path / "rates.csv"
    trace.write_text("0,10000\n0.01,0\n")
    source = replace(PLAIN, rate_trace="rates.csv")
    reader = NexmarkReader("gen", source, tmp_path)
    reader.open("gen/0", b"", NOW_US)
    batch = reader.read("gen/0", b"", MANY, MANY, NOW_US + 10**6)
    assert (len(batch.rows), batch.finished, reader.grew("gen/0", batch.position)) == (92, True, False)
    trace.write_text("0,10000\n0.02,0\n")
    longer = NexmarkReader("gen", source, tmp_path)
    longer.open("gen/0", batch.position, NOW_US)
    assert longer.grew("gen/0", batch.position)
