"""The fields of the NEXMark generator: its benchmark's defaults and columns, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.connectors.nexmark import NexmarkSource, NexmarkSourceSpec
from penstock.dataflow.source import Rate

COLUMNS = {
    "Persons": "id name emailAddress creditCard city state dateTime extra",
    "Auctions": ("id itemName description initialBid reserve dateTime expires seller category extra"),
    "Bids": "auction bidder price channel url dateTime extra",
}


def planned(**fields: Any) -> NexmarkSource:
    return NexmarkSourceSpec.model_validate({"events": "Bids", **fields}).plan()


def test_what_is_left_out_is_as_in_the_benchmark() -> None:
    # 2015-07-15T00:00:00Z, as in Beam.
    assert planned() == NexmarkSource("Bids", None, 10_000, 1_436_918_400_000, None, 1, 0)
    assert planned().rate == Rate()


def test_every_field_reaches_the_plan() -> None:
    given = {
        "eventsTotal": 100,
        "eventsPerSecond": 50,
        "startTime": "1970-01-01T00:00:01.250Z",
        "ratePerSecond": 20.0,
        "outOfOrderGroupSize": 150,
        "hotAuctionRatio": 3,
        "hotBiddersRatio": 5,
        "hotSellersRatio": 6,
        "auctionsInFlight": 7,
        "activePeople": 8,
        "partitions": 9,
        "seed": 10,
    }
    assert planned(**given) == NexmarkSource("Bids", 100, 50, 1250, 20.0, 9, 10, 150, 3, 5, 6, 7, 8)
    assert planned(rateTrace={"file": "rates.csv"}).rate == Rate(None, "rates.csv")


@pytest.mark.parametrize("stream", COLUMNS)
def test_each_stream_has_the_benchmarks_columns(stream: str) -> None:
    schema = NexmarkSourceSpec.schema_of({"events": stream})
    assert schema is not None
    assert schema.names == tuple(COLUMNS[stream].split())
    assert next(column.type for column in schema.columns if column.name == "dateTime") == "timestamp"


def test_of_a_stream_that_there_is_not_no_columns_are_known() -> None:
    assert NexmarkSourceSpec.schema_of({"events": "Offers"}) is None
    assert NexmarkSourceSpec.schema_of({}) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"events": "Offers"},
        {"eventsTotal": 0},
        {"eventsPerSecond": 0},
        {"startTime": "2015-02-30T00:00:00Z"},
        {"startTime": "2015-07-15"},
        {"startTime": "9999-07-15T00:00:00Z"},
        {"hotAuctionRatio": 0},
        {"outOfOrderGroupSize": 20_000},
        {"partitions": 0},
    ],
)
def test_what_is_out_of_bounds_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        planned(**fields)


@pytest.mark.parametrize(("group", "near"), [(2, 50), (149, 100)])
def test_groups_out_of_order_hold_whole_rounds(group: int, near: int) -> None:
    (fault,) = NexmarkSourceSpec.faults_of("source.nexmark", {"outOfOrderGroupSize": group})
    assert str(fault) == (
        "source.nexmark.outOfOrderGroupSize: kinds of events come in rounds of 50; give 1 (in order) or a "
        f"multiple of 50, such as {near}"
    )
    for right in (1, 50, 1000):
        assert NexmarkSourceSpec.faults_of("source.nexmark", {"outOfOrderGroupSize": right}) == []


def test_it_has_one_rate() -> None:
    body = {"events": "Bids", "ratePerSecond": 5, "rateTrace": {"file": "rates.csv"}}
    assert [fault.path for fault in NexmarkSourceSpec.faults_of("source.nexmark", body)] == [
        "source.nexmark.rateTrace"
    ]
