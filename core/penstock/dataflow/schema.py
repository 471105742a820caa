"""Column types and schemas, without Spark: what `outputSchema` strings mean.

The worker turns a `Schema` into pyspark's StructType; names of types are Spark SQL's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """`type` is Spark's simple name in its canonical form: string, int, bigint, double, float,
    boolean, tinyint, smallint, date, timestamp, timestamp_ntz, binary, decimal(p,s), array<...>,
    map<...,...>, struct<name:type,...>."""

    name: str
    type: str
    nullable: bool = True
    """False in schemas of state alone; what lies there is the same either way."""


@dataclass(frozen=True, slots=True)
class Schema:
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def ddl(self) -> str:
        """As Spark's DDL, for messages and for the worker's StructType."""
        return ", ".join(f"`{c.name.replace('`', '``')}` {c.type}" for c in self.columns)
