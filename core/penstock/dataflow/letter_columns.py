"""The rows of a topology's sink of dead letters: how the sink is called, and its columns.

They are the same for all operators and for life, so that whatever reads them needs no other schema than this.
Keys and records have the columns of their operator, and are JSON therefore. Neighbours: `plan` has the sink
at each stage, the worker's `letter_rows` makes the rows.
"""

from __future__ import annotations

from penstock.dataflow.schema import Column, Schema

DEAD_LETTERS = "dead-letters"
"""The name of the sink; no operator of such a topology is called so."""

LETTER_SCHEMA = Schema(
    (
        Column("id", "string"),
        Column("operator", "string"),
        Column("kind", "string"),
        Column("key", "string"),
        Column("record", "string"),
        Column("error", "string"),
        Column("traceback", "string"),
        Column("shard", "string"),
        Column("position", "string"),
        Column("attempts", "int"),
        Column("timer", "timestamp"),
        Column("time", "timestamp"),
    )
)
