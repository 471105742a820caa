"""What `make bench-locality` draws, predicts and reads: streams with the shares that they promise, links'
arithmetic, gaps of keys."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import numpy as np
import pytest
from bench.locality import drift, figures, synthetic
from bench.locality.comparison import SEEN, servers_of
from bench.locality.drift_stream import FITTED, DriftStream
from bench.locality.outputs import Output, Outputs, read_outputs
from bench.locality.reconfiguration import Load, Reconfigured
from bench.locality.streams import Stream, StreamReader, set_stream
from bench.locality.sweep import Condition, Point
from bench.locality.synthetic import HASH, TABLE, WAYS, WORST
from bench.locality.topology import INTEGERS, SECOND, SHARDS_EACH, SINK
from bench.two_nodes import NodesFailedError

from penstock.dataflow.sink_files import sink_file_name
from penstock.dataflow.wire_keys import wire_router

SEED = 20
HOSTS = 6


def test_by_hash_integers_stay_exactly_as_often_as_hosts_are_few_on_even_hosts() -> None:
    keys = synthetic.integers(HOSTS)
    route = wire_router((INTEGERS[0],), HOSTS * SHARDS_EACH)
    for host, mine in enumerate(keys.first):
        assert len(mine) == HOSTS * synthetic.KEYS_EACH
        assert {route((n,)) % HOSTS for n in mine} == {host}
        assert sorted(keys.at[n] for n in mine) == sorted(list(range(HOSTS)) * synthetic.KEYS_EACH)


@pytest.mark.parametrize(("way", "stays"), [(HASH, 1 / HOSTS), (TABLE, 0.8), (WORST, 0.2 / (HOSTS - 1))])
def test_rows_stay_as_often_as_the_way_says(way: str, stays: float) -> None:
    keys = synthetic.integers(HOSTS)
    made = synthetic.stream(keys, 0.8, 12_000, 100.0, SEED)
    shares = synthetic.flows(made, keys, way)
    assert 1 - synthetic.crossing(shares) == pytest.approx(stays, abs=0.01)


@pytest.mark.parametrize("way", WAYS)
def test_tables_put_integers_where_the_way_says(way: str) -> None:
    keys = synthetic.integers(3)
    table, at = synthetic.table_of(keys, way), synthetic.second_at(keys, way)
    route = wire_router((INTEGERS[1],), 3 * SHARDS_EACH)
    for n in itertools.chain.from_iterable(keys.first):
        assert table.get((n,), route((n,))) % 3 == at[n]
    assert bool(table) == (way != HASH)


def test_links_allow_what_the_fullest_direction_carries_and_no_more_than_sources_make() -> None:
    shares = np.array([[0.5, 0.5], [0.2, 0.8]])
    assert synthetic.allowed_per_s(shares, 1000.0, 8_000_000, 1e9) == pytest.approx(2 * 1_000_000 / 500)
    assert synthetic.allowed_per_s(shares, 1000.0, 8_000_000, 300.0) == pytest.approx(600)
    assert synthetic.allowed_per_s(np.eye(2), 1000.0, 8_000_000, 300.0) == pytest.approx(600)


def test_a_reader_gives_the_same_rows_from_the_same_position_at_the_pace_of_its_stream(
    tmp_path: Path,
) -> None:
    set_stream(tmp_path, Stream({"source/0": [(1, 2), (3, 4)]}, 3, 1000.0))
    reader = StreamReader(tmp_path)
    reader.open("source/0", b"", 0)
    first = reader.read("source/0", b"", 1024, 1 << 18, 10_000)
    assert first.rows[:3] == [(1, 2, "012"), (3, 4, "012"), (1, 2, "012")]
    assert (len(first.rows), first.position) == (10, b"10")
    again = StreamReader(tmp_path)
    again.open("source/0", b"9", 0)
    assert again.read("source/0", b"9", 1, 1 << 18, 10_000).rows == first.rows[9:]
    late = reader.read("source/0", b"10", 1024, 1 << 18, 10_000_000)
    assert len(late.rows) == 50, "what was held back does not come all at once"


def test_weeks_are_those_of_the_seed_and_tags_that_are_new_have_not_been_seen() -> None:
    weeks, again = (list(DriftStream(FITTED, SEED).weeks(3)) for _ in range(2))
    assert all((one.tag == other.tag).all() for one, other in zip(weeks, again, strict=True))
    seen = [set(week.tag.tolist()) for week in weeks]
    stable = len(seen[0] & seen[1] & seen[2]) / len(seen[0])
    assert 0.1 < stable < 0.9
    assert len(seen[1] - seen[0]) > 0.2 * len(seen[1])


def test_hash_keeps_one_in_six_of_a_week() -> None:
    weeks = list(DriftStream(FITTED, SEED).weeks(1))
    names = drift.Names(weeks, HOSTS)
    here = names.hashed["first"][weeks[0].location] % HOSTS
    there = names.hashed["second"][weeks[0].tag] % HOSTS
    assert drift.measured(here, there, HOSTS)[0] == pytest.approx(1 / HOSTS, abs=0.03)


def outputs_in(folder: Path, rows: list[Output]) -> Outputs:
    (folder / "out").mkdir(exist_ok=True)
    file = folder / "out" / sink_file_name(SINK, SECOND, "0")
    file.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    return read_outputs(folder)


def test_the_longest_gap_of_a_key_is_one_that_overlaps_the_time(tmp_path: Path) -> None:
    at_s = (0.0, 1.0, 1.1, 1.4, 1.5, 4.0)
    rows = [Output("a", 2, 2 * (n + 1), int(at * 1e6)) for n, at in enumerate(at_s)]
    outputs = outputs_in(tmp_path, rows)
    assert outputs.rows() == 12
    assert outputs.longest_gaps_ms(1.05, 1.45) == {"a": pytest.approx(300)}
    assert outputs.longest_gaps_ms(0.5, 1.05) == {"a": pytest.approx(1000)}
    assert outputs.longest_gaps_ms(1.5, 9.0) == {}, "nothing behind it tells how long it lasts"
    assert outputs.per_s(1.0, 2.0, 0.5).tolist() == [12.0, 4.0]


def test_a_row_that_is_lost_or_there_twice_shows_in_totals(tmp_path: Path) -> None:
    with pytest.raises(NodesFailedError, match="total of a"):
        outputs_in(tmp_path, [Output("a", 1, 1, 0), Output("a", 1, 3, 1)])
    with pytest.raises(NodesFailedError, match="total of a"):
        outputs_in(tmp_path, [Output("a", 1, 1, 0), Output("a", 2, 2, 1)])


# --- what is told -------------------------------------------------------------------------------------


def point(hosts: int, way: str, condition: Condition = SEEN) -> Point:
    """Twice as many by table as by hash, of three times that are allowed."""
    per_s, allowed = {HASH: (100.0, 100.0), WORST: (80.0, 90.0), TABLE: (200.0, 300.0)}[way]
    return Point(hosts, way, condition, per_s, allowed, 0.5, 1000, 6_300_000, 6_000_000.0)


def run(hosts: int) -> Reconfigured:
    load = Load(4_000_000, 4_000, 100.0, 2.0, SEED)
    return Reconfigured(
        hosts, load, 100.0, 200.0, 0.17, 0.7, 0.75, [100.0, 200.0] * 4, 2.0, 0.5, 20, [9.0, 90.0], [8.0], 800
    )


def test_the_bound_is_table_over_hash_as_links_allow() -> None:
    found = servers_of([point(6, way) for way in WAYS])["6"]
    assert found[HASH]["records_per_s"] == 100
    assert found["bound"] == 3
    assert found["table_over_hash"] == 2
    assert found["of_bound"] == pytest.approx(2 / 3, abs=0.001)


def test_bytes_are_compared_where_rows_are_most_of_what_is_on_the_wire() -> None:
    assert point(6, HASH).bytes_off == pytest.approx(0.05)
    assert point(6, HASH, Condition(0, 0.8)).bytes_off is None


def test_pictures_are_drawn(tmp_path: Path) -> None:
    conditions = (SEEN, Condition(12_000, 1.0), Condition(0, 0.8))
    points = [point(hosts, way, one) for hosts in (2, 6) for way in WAYS for one in conditions]
    figures.throughput(tmp_path / "throughput.png", points, 6, SEEN)
    weeks = [drift.WeekFigures(0.2, 0.1, float("nan"), 0), drift.WeekFigures(0.5, 0.2, 0.7, 10)]
    figures.drift(tmp_path / "drift.png", dict.fromkeys(drift.MODES, weeks))
    figures.pairs_kept(tmp_path / "pairs.png", {2: [(10, 0.5), (100, 0.6)], 6: [(10, 0.2)]})
    figures.reconfigurations(tmp_path / "reconfiguration.png", [run(2), run(6)])
    assert len(list(tmp_path.glob("*.png"))) == 4
