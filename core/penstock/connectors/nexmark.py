"""The kind of source `nexmark`: one stream of the NEXMark benchmark's generator: persons, auctions or bids.

The generator counts events: of each 50 the first is a person, three are auctions and 46 are bids. An event
is a function of the seed and its number, its time of the number alone; so sources with the same settings
give the streams of one generator, however many partitions each has. Names, defaults and rules are those of
Apache Beam's and Flink's generators. The worker's `sources.nexmark` reads them.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints

from penstock.connectors.rate import ONE_RATE, RatePerSecond, RateTraceSpec, rate_faults, trace_file
from penstock.connectors.source import SourceFields
from penstock.dataflow.schema import Column, Schema
from penstock.dataflow.source import Rate, Source
from penstock.manifest.document import EXPECTED, SHARDS_MAX, cel, fixed
from penstock.manifest.faults import Fault

Stream = Literal["Persons", "Auctions", "Bids"]

EVENTS_PER_ROUND = 50
"""After so many events the kinds come in the same order again."""
STREAM_EVENTS: Mapping[Stream, tuple[int, int]] = {"Persons": (0, 1), "Auctions": (1, 3), "Bids": (4, 46)}
"""Which events of a round a stream has: the first one, and how many."""

SCHEMAS: Mapping[Stream, Schema] = {
    "Persons": Schema(
        (
            Column("id", "bigint"),
            Column("name", "string"),
            Column("emailAddress", "string"),
            Column("creditCard", "string"),
            Column("city", "string"),
            Column("state", "string"),
            Column("dateTime", "timestamp"),
            Column("extra", "string"),
        )
    ),
    "Auctions": Schema(
        (
            Column("id", "bigint"),
            Column("itemName", "string"),
            Column("description", "string"),
            Column("initialBid", "bigint"),
            Column("reserve", "bigint"),
            Column("dateTime", "timestamp"),
            Column("expires", "timestamp"),
            Column("seller", "bigint"),
            Column("category", "bigint"),
            Column("extra", "string"),
        )
    ),
    "Bids": Schema(
        (
            Column("auction", "bigint"),
            Column("bidder", "bigint"),
            Column("price", "bigint"),
            Column("channel", "string"),
            Column("url", "string"),
            Column("dateTime", "timestamp"),
            Column("extra", "string"),
        )
    ),
}

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class NexmarkSource(Source):
    """One stream of a generator. All but `stream`, `partitions` and the rate are the generator's."""

    kind: ClassVar[str] = "nexmark"

    stream: Stream
    events: int | None
    """How many events the generator has, over all streams; None is endless."""
    events_per_s: int
    """Of event time: how fast it goes."""
    start_ms: int
    """Event time of the generator's first event, in milliseconds since 1970."""
    rate_per_s: float | None
    """Events of the whole generator that fall due in a second."""
    partitions: int
    seed: int
    out_of_order_group: int = 1
    hot_auction_ratio: int = 2
    hot_bidders_ratio: int = 4
    hot_sellers_ratio: int = 4
    auctions_in_flight: int = 100
    active_people: int = 1000
    rate_trace: str | None = None

    @property
    def rate(self) -> Rate:
        """Events of the whole generator: its reader gives those of the stream when they are due."""
        return Rate(self.rate_per_s, self.rate_trace)

    @property
    def fixed_parts(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(self.partitions))

    def parts(self, base_dir: Path) -> tuple[str, ...]:
        return self.fixed_parts

    def identity_text(self) -> str:
        return (
            f"{self.stream} of {'endless' if self.events is None else self.events} events, "
            f"{self.events_per_s} a second from {self.start_ms} ms on, groups of {self.out_of_order_group}, "
            f"hot {self.hot_auction_ratio} {self.hot_bidders_ratio} {self.hot_sellers_ratio}, "
            f"{self.auctions_in_flight} auctions in flight, {self.active_people} active people, "
            f"{self.partitions} partitions, seed {self.seed}"
        )


def start_ms(text: str) -> int:
    """Milliseconds since 1970 of a time such as 2015-07-15T00:00:00Z. ValueError for a day or an hour that
    there is not."""
    return (datetime.datetime.fromisoformat(text) - _EPOCH) // _MILLISECOND


def _a_time(text: str) -> str:
    start_ms(text)
    return text


StartTime = Annotated[
    str,
    StringConstraints(
        pattern=r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3})?Z$", max_length=24
    ),
    AfterValidator(_a_time),
    Field(
        json_schema_extra={
            "format": "date-time",
            EXPECTED: "a time in UTC, before the year 3000, such as 2015-07-15T00:00:00Z",
        }
    ),
]


class NexmarkSourceSpec(SourceFields):
    """One of the three streams of the NEXMark benchmark's generator. Sources whose settings are the same, but
    for `events`, the rate and `partitions`, give streams of the same generator.

    Columns of Persons: `id bigint, name string, emailAddress string, creditCard string, city string, state
    string, dateTime timestamp, extra string`. Of Auctions: `id bigint, itemName string, description string,
    initialBid bigint, reserve bigint, dateTime timestamp, expires timestamp, seller bigint, category bigint,
    extra string`. Of Bids: `auction bigint, bidder bigint, price bigint, channel string, url string, dateTime
    timestamp, extra string`.
    """

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.partitions == oldSelf.partitions",
                "partitions are shards, and their number is fixed for life",
            ),
            (
                "self.events == oldSelf.events && self.eventsPerSecond == oldSelf.eventsPerSecond && "
                "self.startTime == oldSelf.startTime && self.seed == oldSelf.seed && "
                "self.outOfOrderGroupSize == oldSelf.outOfOrderGroupSize && "
                "self.hotAuctionRatio == oldSelf.hotAuctionRatio && "
                "self.hotBiddersRatio == oldSelf.hotBiddersRatio && "
                "self.hotSellersRatio == oldSelf.hotSellersRatio && "
                "self.auctionsInFlight == oldSelf.auctionsInFlight && "
                "self.activePeople == oldSelf.activePeople && " + fixed("eventsTotal"),
                "a generator's events and their times are fixed for life; its rate may change",
            ),
            (
                f"self.outOfOrderGroupSize == 1 || self.outOfOrderGroupSize % {EVENTS_PER_ROUND} == 0",
                f"outOfOrderGroupSize is 1 (in order) or a multiple of {EVENTS_PER_ROUND}",
            ),
            ONE_RATE,
        )
    )

    planned: ClassVar[type[Source]] = NexmarkSource

    events: Stream
    """Which stream: of 50 events one is a person, three are auctions, 46 are bids."""
    events_total: Annotated[int, Field(ge=1, le=10**15, json_schema_extra={"format": "int64"})] | None = None
    """How many events the generator has, over its three streams; without it the source never ends."""
    events_per_second: Annotated[int, Field(ge=1, le=10**9)] = 10_000
    """How fast event time goes: events of the whole generator in a second of the column dateTime."""
    start_time: StartTime = "2015-07-15T00:00:00Z"
    """Event time of the generator's first event."""
    rate_per_second: RatePerSecond | None = None
    """Events of the whole generator that fall due in a second, of which the source gives its own; without it
    as fast as downstream takes them."""
    rate_trace: RateTraceSpec | None = None
    """Events of the whole generator a second, over time; instead of ratePerSecond. A last rate of 0 ends the
    source."""
    out_of_order_group_size: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Events come mixed within groups of so many; 1 is in order, others are multiples of 50."""
    hot_auction_ratio: Annotated[int, Field(ge=1, le=1_000_000)] = 2
    """One of so many bids is on any auction in flight, the others on a hot one."""
    hot_bidders_ratio: Annotated[int, Field(ge=1, le=1_000_000)] = 4
    """One of so many bids is by anybody active, the others by a hot bidder."""
    hot_sellers_ratio: Annotated[int, Field(ge=1, le=1_000_000)] = 4
    """One of so many auctions is by anybody active, the others by a hot seller."""
    auctions_in_flight: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """How many of the last auctions are bid on; they last as long on average as it takes to begin so many."""
    active_people: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """How many of the last persons bid and sell."""
    partitions: Annotated[int, Field(ge=1, le=SHARDS_MAX)] = 1
    """Shards of the source; fixed for life."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0

    @classmethod
    def schema_of(cls, body: Mapping[str, Any]) -> Schema | None:
        match body.get("events"):
            case "Persons" | "Auctions" | "Bids" as stream:
                return SCHEMAS[stream]
            case _:
                return None

    @classmethod
    def faults_of(cls, path: str, body: Mapping[str, Any]) -> list[Fault]:
        faults = rate_faults(path, body)
        group = body.get("outOfOrderGroupSize")
        if isinstance(group, int) and group > 1 and group % EVENTS_PER_ROUND:
            message = (
                f"kinds of events come in rounds of {EVENTS_PER_ROUND}; give 1 (in order) or a multiple of "
                f"{EVENTS_PER_ROUND}, such as {max(1, group // EVENTS_PER_ROUND) * EVENTS_PER_ROUND}"
            )
            faults.append(Fault(f"{path}.outOfOrderGroupSize", message))
        return faults

    def plan(self) -> NexmarkSource:
        return NexmarkSource(
            stream=self.events,
            events=self.events_total,
            events_per_s=self.events_per_second,
            start_ms=start_ms(self.start_time),
            rate_per_s=self.rate_per_second,
            partitions=self.partitions,
            seed=self.seed,
            out_of_order_group=self.out_of_order_group_size,
            hot_auction_ratio=self.hot_auction_ratio,
            hot_bidders_ratio=self.hot_bidders_ratio,
            hot_sellers_ratio=self.hot_sellers_ratio,
            auctions_in_flight=self.auctions_in_flight,
            active_people=self.active_people,
            rate_trace=trace_file(self.rate_trace),
        )
