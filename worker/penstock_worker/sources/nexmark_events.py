"""The events of the NEXMark benchmark's generator, each a function of the seed and its number alone.

Kinds come in rounds of 50: event n is a person where n % 50 is 0, an auction where it is 1 to 3, a bid after
that. Persons and auctions are numbered from 1000 on in the order of their events. Rules, words and sizes
are those of Apache Beam's and Flink's generators:

- a hot auction is the first of the last hundred, a hot seller the first of the last hundred persons, a hot
  bidder the second; the others are drawn from those in flight, or active, and ten that are still to come;
- a price is 100 * 10 ** u, u even in 0 to 6; an auction lasts up to twice as long as it takes to begin as
  many as are in flight;
- `extra` fills a person up to 200 bytes on average, an auction up to 500, a bid up to 100.

Different here: random numbers come from a count instead of a sequence, so that any event can be made without
those before it; a bidder's id is a person's, where Flink's adds 1000 twice; e-mail addresses have no spaces.
Neighbour: `nexmark` reads partitions of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.connectors.nexmark import EVENTS_PER_ROUND, STREAM_EVENTS, NexmarkSource, Stream, start_ms

Row = tuple[Any, ...]
Numbers = NDArray[np.int64]

FIRST_ID = 1000
"""Of persons and of auctions."""
FIRST_CATEGORY = 10
CATEGORIES = 5
HOT_EVERY = 100
"""One auction in so many is hot, one person in so many is a hot seller and one a hot bidder."""
AHEAD = 10
"""So many auctions and persons may be named before they are there."""
_EVENT_BYTES: Mapping[Stream, int] = {"Persons": 200, "Auctions": 500, "Bids": 100}
_CHANNELS = 10_000
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_FIRST_NAMES = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent",
    "Cheyenne",
)  # fmt: skip
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")

_SHUFFLE = 953
"""By which the benchmark mixes the events of a group; it has no divisor in common with a round."""
_TIME_ENDS_MS = start_ms("9000-01-01T00:00:00Z")
"""Spark's years end at 9999, and auctions expire after their events."""
_TEXT_LENGTH = 1 << 16
_STRING_MIN = 3
_DRAWS = 32
"""More random numbers than an event needs."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class NexmarkEvents:
    """The events of one stream. A row of the stream is known by its index, from 0 on. It comes at a place
    among the events of all streams, and is the event of a number: its place's, where events come in order."""

    def __init__(self, source: NexmarkSource) -> None:
        self._source = source
        first, count = STREAM_EVENTS[source.stream]
        offsets = np.arange(EVENTS_PER_ROUND)
        kinds = offsets if source.out_of_order_group == 1 else offsets * _SHUFFLE % EVENTS_PER_ROUND
        self._places: Numbers = offsets[(kinds >= first) & (kinds < first + count)]
        self._channels = _channels(source.seed) if source.stream == "Bids" else ()

    @property
    def places(self) -> int:
        """How many events all streams have. One that is endless ends with the time that Spark knows."""
        most = max(0, _TIME_ENDS_MS - self._source.start_ms) * self._source.events_per_s // 1000
        return most if self._source.events is None else min(self._source.events, most)

    def place(self, index: int) -> int:
        rounds, within = divmod(index, len(self._places))
        return rounds * EVENTS_PER_ROUND + int(self._places[within])

    def places_of(self, indexes: Numbers) -> Numbers:
        rounds, within = np.divmod(indexes, len(self._places))
        places: Numbers = rounds * EVENTS_PER_ROUND + self._places[within]
        return places

    def rows_before(self, place: int) -> int:
        """How many rows of the stream stand before a place."""
        rounds, within = divmod(place, EVENTS_PER_ROUND)
        return rounds * len(self._places) + int(np.searchsorted(self._places, within))

    def rows(self, indexes: Numbers) -> list[Row]:
        places = self.places_of(indexes)
        group = self._source.out_of_order_group
        numbers = places // group * group + places % group * _SHUFFLE % group
        draws = _Draws(self._source.seed, numbers)
        match self._source.stream:
            case "Persons":
                return self._persons(numbers, draws)
            case "Auctions":
                return self._auctions(numbers, draws)
            case "Bids":
                return self._bids(numbers, draws)

    def _persons(self, numbers: Numbers, draws: _Draws) -> list[Row]:
        ids = FIRST_ID + _last("Persons", numbers)
        names = [
            f"{first} {last}"
            for first, last in zip(draws.of(0, _FIRST_NAMES), draws.of(1, _LAST_NAMES), strict=True)
        ]
        addresses = [
            f"{user}@{host}.com"
            for user, host in zip(draws.texts(2, 7, _letters()), draws.texts(4, 5, _letters()), strict=True)
        ]
        fours = [draws.below(6 + four, 10_000).tolist() for four in range(4)]
        cards = [f"{a:04} {b:04} {c:04} {d:04}" for a, b, c, d in zip(*fours, strict=True)]
        cities, states = draws.of(10, _CITIES), draws.of(11, _STATES)
        lengths = _lengths(8, names, addresses, cards, cities, states)
        extras = draws.extras(12, lengths, _EVENT_BYTES["Persons"])
        times_us = (self._times_ms(numbers) * 1000).tolist()
        return list(zip(ids.tolist(), names, addresses, cards, cities, states, times_us, extras, strict=True))

    def _auctions(self, numbers: Numbers, draws: _Draws) -> list[Row]:
        source = self._source
        ids = FIRST_ID + _last("Auctions", numbers)
        hot = _last("Persons", numbers) // HOT_EVERY * HOT_EVERY
        is_hot = draws.below(0, source.hot_sellers_ratio) > 0
        sellers = FIRST_ID + np.where(is_hot, hot, self._anybody(1, numbers, draws))
        categories = FIRST_CATEGORY + draws.below(2, CATEGORIES)
        first_bids = draws.prices(3)
        reserves = first_bids + draws.prices(4)
        times_ms = self._times_ms(numbers)
        ahead = source.auctions_in_flight * EVENTS_PER_ROUND // STREAM_EVENTS["Auctions"][1]
        horizons_ms = self._times_ms(numbers + ahead) - times_ms
        expire_ms = times_ms + 1 + draws.below(5, np.maximum(2 * horizons_ms, 1))
        items = [text.strip() for text in draws.texts(6, 20, _words())]
        descriptions = [text.strip() for text in draws.texts(8, 100, _words())]
        extras = draws.extras(10, _lengths(48, items, descriptions), _EVENT_BYTES["Auctions"])
        return list(
            zip(
                ids.tolist(), items, descriptions, first_bids.tolist(), reserves.tolist(),
                (times_ms * 1000).tolist(), (expire_ms * 1000).tolist(), sellers.tolist(),
                categories.tolist(), extras, strict=True,
            )
        )  # fmt: skip

    def _bids(self, numbers: Numbers, draws: _Draws) -> list[Row]:
        source = self._source
        last = _last("Auctions", numbers)
        oldest = np.maximum(last - source.auctions_in_flight, 0)
        in_flight = oldest + draws.below(1, last - oldest + 1 + AHEAD)
        is_hot = draws.below(0, source.hot_auction_ratio) > 0
        auctions = FIRST_ID + np.where(is_hot, last // HOT_EVERY * HOT_EVERY, in_flight)
        hot = _last("Persons", numbers) // HOT_EVERY * HOT_EVERY + 1
        is_hot = draws.below(2, source.hot_bidders_ratio) > 0
        bidders = FIRST_ID + np.where(is_hot, hot, self._anybody(3, numbers, draws))
        prices = draws.prices(4)
        # Half of the bids come by the four hot channels, which stand behind the others.
        is_hot = draws.below(5, 2) > 0
        numbered = np.where(is_hot, _CHANNELS + draws.below(6, len(_HOT_CHANNELS)), draws.below(7, _CHANNELS))
        channels = [self._channels[number] for number in numbered.tolist()]
        extras = draws.extras(8, np.full(len(numbers), 32), _EVENT_BYTES["Bids"])
        times_us = (self._times_ms(numbers) * 1000).tolist()
        return [
            (auction, bidder, price, channel, url, time_us, extra)
            for auction, bidder, price, (channel, url), time_us, extra in zip(
                auctions.tolist(), bidders.tolist(), prices.tolist(), channels, times_us, extras, strict=True
            )
        ]

    def _anybody(self, purpose: int, numbers: Numbers, draws: _Draws) -> Numbers:
        """Somebody active at each event, or among the next to come; counted from 0."""
        people = _last("Persons", numbers) + 1
        active = np.minimum(people, self._source.active_people)
        return people - active + draws.below(purpose, active + AHEAD)

    def _times_ms(self, numbers: Numbers) -> Numbers:
        return self._source.start_ms + numbers * 1000 // self._source.events_per_s


def _last(stream: Stream, numbers: Numbers) -> Numbers:
    """The last person or auction up to each event, counted from 0; its own for one of that stream."""
    first, count = STREAM_EVENTS[stream]
    rounds, within = np.divmod(numbers, EVENTS_PER_ROUND)
    last: Numbers = rounds * count + np.minimum(within - first, count - 1)
    return last


# --- random numbers -------------------------------------------------------------------------------


class _Draws:
    """Random numbers of events, by what they are drawn for (`purpose`, below 32): SplitMix64 (Steele, Lea and
    Flood, 2014) at the place that seed, event and purpose have in its sequence."""

    def __init__(self, seed: int, numbers: Numbers) -> None:
        begin = _mixed(np.array([seed + 1], dtype=np.uint64) * _GOLDEN)
        self._places = begin + numbers.astype(np.uint64) * np.uint64(_DRAWS)

    def even(self, purpose: int) -> NDArray[np.float64]:
        """Evenly from 0 to 1, without 1."""
        bits = _mixed((self._places + np.uint64(purpose)) * _GOLDEN)
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, purpose: int, bound: int | Numbers) -> Numbers:
        """Whole numbers from 0 on."""
        return (self.even(purpose) * bound).astype(np.int64)

    def prices(self, purpose: int) -> Numbers:
        return np.rint(10.0 ** (self.even(purpose) * 6) * 100).astype(np.int64)

    def of(self, purpose: int, choices: tuple[str, ...]) -> list[str]:
        return [choices[number] for number in self.below(purpose, len(choices)).tolist()]

    def texts(self, purpose: int, length_max: int, text: str) -> list[str]:
        """Parts of a text, of 3 to less than so many characters. Takes the next purpose too."""
        lengths = _STRING_MIN + self.below(purpose + 1, length_max - _STRING_MIN)
        return self._parts(purpose, lengths, text)

    def extras(self, purpose: int, lengths: Numbers, wanted: int) -> list[str]:
        """Letters that fill events of such lengths up to `wanted` on average. Takes the next purpose too."""
        missing = np.maximum(wanted - lengths, 0)
        spread = np.rint(missing * 0.2).astype(np.int64)
        return self._parts(purpose, missing - spread + self.below(purpose + 1, 2 * spread), _letters())

    def _parts(self, purpose: int, lengths: Numbers, text: str) -> list[str]:
        begins = self.below(purpose, len(text) - lengths)
        return [
            text[begin : begin + length]
            for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True)
        ]


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _lengths(fixed: int, *texts: list[str]) -> Numbers:
    """Of events that have these texts, and so many bytes beside them."""
    lengths: Numbers = np.array([list(map(len, column)) for column in texts], dtype=np.int64).sum(axis=0)
    return lengths + fixed


@cache
def _letters() -> str:
    """What texts are cut from; the same for all seeds."""
    letters = _Draws(0, np.arange(_TEXT_LENGTH)).below(0, 26)
    return (letters + ord("a")).astype(np.uint8).tobytes().decode()


@cache
def _words() -> str:
    """The same with a space now and then, one character in 13."""
    spaces = (_Draws(0, np.arange(_TEXT_LENGTH)).below(1, 13) == 0).tolist()
    return "".join(" " if is_space else letter for is_space, letter in zip(spaces, _letters(), strict=True))


@cache
def _channels(seed: int) -> tuple[tuple[str, str], ...]:
    """Name and address of each channel, the hot ones behind the others. Most addresses tell the channel."""
    draws = _Draws(seed, -1 - np.arange(_CHANNELS + len(_HOT_CHANNELS)))
    folders = [[text.replace(" ", "_") for text in draws.texts(2 * part, 5, _words())] for part in range(3)]
    told = (draws.below(6, 10) > 0).tolist()
    addresses = [
        f"https://www.nexmark.com/{'/'.join(parts)}/item.htm?query=1" for parts in zip(*folders, strict=True)
    ]
    numbered = [
        (f"channel-{number}", f"{address}&channel_id={_channel_id(number)}" if is_told else address)
        for number, (address, is_told) in enumerate(zip(addresses[:_CHANNELS], told[:_CHANNELS], strict=True))
    ]
    return (*numbered, *zip(_HOT_CHANNELS, addresses[_CHANNELS:], strict=True))


def _channel_id(number: int) -> int:
    """The 32 bits in reverse, as a number without its sign."""
    reverse = int(f"{number:032b}"[::-1], 2)
    return min(reverse, 2**32 - reverse)
