"""User code that a source or a sink names, so that whoever checks or runs it need not know its kind.

Neighbours: `source` and `sink` answer it, `penstock.api.code` looks whether it is there, the worker's
`user_code.inspect_code` whether it is right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class NamedCode:
    """`field` of the kind holds `target`, "module:name"; `role` says what is wanted there."""

    field: str
    target: str
    role: str
    """DATA_SOURCE, FOREACH or FOREACH_BATCH."""
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What a data source is made with,"""
    schema: str = ""
    """its columns in DDL, where the manifest gives them,"""
    bounded: bool = False
    """and whether its bounded reader is asked for though it may have another."""
    writes: bool = False
    """Whether it is written to and not read."""


DATA_SOURCE = "data source"
"""A pyspark.sql.datasource.DataSource."""
FOREACH = "foreach"
"""A function of a row, or a class with open, process and close."""
FOREACH_BATCH = "foreachBatch"
"""A function of a DataFrame and a batch id."""
