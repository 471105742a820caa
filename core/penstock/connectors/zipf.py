"""The kind of source `zipf`: a generator of records with zipf-distributed keys (Elasticutor, section 5).

The worker's `sources.zipf` generates them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from penstock.connectors.rate import (
    ONE_RATE,
    RatePerSecond,
    RateTraceSpec,
    rate_faults,
    rates_given,
    trace_file,
)
from penstock.connectors.source import SourceFields
from penstock.dataflow.schema import Column, Schema
from penstock.dataflow.source import Rate, Source
from penstock.manifest.document import SHARDS_MAX, Duration, cel, duration_us, fixed
from penstock.manifest.faults import Fault

SCHEMA = Schema(
    (
        Column("key", "bigint"),
        Column("payload", "string"),
        Column("service_time_us", "bigint"),
        Column("number", "bigint"),
    )
)

_TIME_COLUMN = r"^[A-Za-z_][A-Za-z0-9_]*$"


@dataclass(frozen=True, slots=True)
class ZipfSource(Source):
    """Elasticutor section 5: zipf-distributed keys whose ranks are shuffled now and then."""

    kind: ClassVar[str] = "zipf"

    keys: int
    exponent: float
    record_bytes: int
    service_time_us: int
    rate_per_s: float | None
    records: int | None
    """How many in all; None is endless."""
    shuffles_per_minute: float
    partitions: int
    seed: int
    rate_trace: str | None = None
    time_column: str | None = None
    """Of a further column: when the record was due."""

    @property
    def schema(self) -> Schema:
        """Of its rows."""
        if self.time_column is None:
            return SCHEMA
        return Schema((*SCHEMA.columns, Column(self.time_column, "timestamp")))

    @property
    def rate(self) -> Rate:
        return Rate(self.rate_per_s, self.rate_trace)

    @property
    def fixed_parts(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(self.partitions))

    def parts(self, base_dir: Path) -> tuple[str, ...]:
        return self.fixed_parts

    def identity_text(self) -> str:
        timed = "" if self.time_column is None else f", due times as {self.time_column}"
        return (
            f"{self.keys} keys, exponent {self.exponent}, {self.record_bytes} bytes, "
            f"{'endless' if self.records is None else f'{self.records} records'}, "
            f"{self.partitions} partitions, {self.shuffles_per_minute} shuffles a minute, "
            f"seed {self.seed}{timed}"
        )


class ZipfSourceSpec(SourceFields):
    """A generator of records with zipf-distributed keys (Elasticutor, section 5).

    Its columns are `key bigint, payload string, service_time_us bigint, number bigint`, and where it has a
    timeColumn that one too, a timestamp.
    """

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.partitions == oldSelf.partitions",
                "partitions are shards, and their number is fixed for life",
            ),
            (
                "self.keys == oldSelf.keys && self.exponent == oldSelf.exponent && "
                "self.recordBytes == oldSelf.recordBytes && self.seed == oldSelf.seed && "
                "self.shufflesPerMinute == oldSelf.shufflesPerMinute && "
                + f"{fixed('records')} && {fixed('timeColumn')}",
                "a generator's records are fixed for life; its rate and serviceTime may change",
            ),
            (
                "!has(self.shufflesPerMinute) || self.shufflesPerMinute == 0.0 || has(self.ratePerSecond) "
                "|| has(self.rateTrace)",
                "shufflesPerMinute counts minutes of the stream: give ratePerSecond or rateTrace too",
            ),
            ONE_RATE,
        )
    )

    planned: ClassVar[type[Source]] = ZipfSource

    keys: Annotated[int, Field(ge=1, le=10_000_000)]
    """How many different keys."""
    exponent: Annotated[float, Field(ge=0, le=5)] = 0.5
    """Skew: a key's share falls with its rank to this power; 0 is uniform."""
    record_bytes: Annotated[int, Field(ge=0, le=65_536)] = 128
    """Length of the payload."""
    service_time: Duration = "0s"
    """Work that each record asks for, in its column service_time_us."""
    rate_per_second: RatePerSecond | None = None
    """Records a second over all partitions; without it as fast as downstream takes them."""
    rate_trace: RateTraceSpec | None = None
    """Records a second over all partitions, over time; instead of ratePerSecond. A last rate of 0 ends the
    source."""
    records: Annotated[int, Field(ge=1, le=10**15, json_schema_extra={"format": "int64"})] | None = None
    """How many records in all; without it the source never ends."""
    shuffles_per_minute: Annotated[float, Field(ge=0, le=6000)] = 0.0
    """How often the keys change their ranks."""
    partitions: Annotated[int, Field(ge=1, le=SHARDS_MAX)] = 1
    """Shards of the source; fixed for life."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    time_column: Annotated[str, Field(pattern=_TIME_COLUMN, max_length=63)] | None = None
    """Name of a further column, which says when the record was due: an event time for windows and timers.
    Without a rate, when it was made."""

    @classmethod
    def schema_of(cls, body: Mapping[str, Any]) -> Schema | None:
        match body.get("timeColumn"):
            case None:
                return SCHEMA
            case str(name) if re.fullmatch(_TIME_COLUMN, name) and name not in SCHEMA.names:
                return Schema((*SCHEMA.columns, Column(name, "timestamp")))
            case _:
                return None

    @classmethod
    def faults_of(cls, path: str, body: Mapping[str, Any]) -> list[Fault]:
        faults = rate_faults(path, body)
        if body.get("timeColumn") in SCHEMA.names:
            message = f"each zipf source has a column {body['timeColumn']!r}; give another name, such as at"
            faults.append(Fault(f"{path}.timeColumn", message))
        if body.get("shufflesPerMinute") and not rates_given(body):
            message = (
                "counts minutes of the stream, which has none without a rate; give ratePerSecond or "
                "rateTrace too"
            )
            faults.append(Fault(f"{path}.shufflesPerMinute", message))
        return faults

    def plan(self) -> ZipfSource:
        return ZipfSource(
            keys=self.keys,
            exponent=self.exponent,
            record_bytes=self.record_bytes,
            service_time_us=duration_us(self.service_time),
            rate_per_s=self.rate_per_second,
            records=self.records,
            shuffles_per_minute=self.shuffles_per_minute,
            partitions=self.partitions,
            seed=self.seed,
            rate_trace=trace_file(self.rate_trace),
            time_column=self.time_column,
        )
