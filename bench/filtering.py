"""One filter and projection, as each form of step has it: bids above a price, in another currency."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

LEAST = 500.0
RATE = 0.908


def in_rows(row: Row) -> Iterator[Row]:
    if row.price > LEAST:
        yield Row(auction=row.auction, bidder=row.bidder, price=row.price * RATE)


def in_tuples(row: Row) -> list[tuple[int, str, float]]:
    return [(row.auction, row.bidder, row.price * RATE)] if row.price > LEAST else []


def in_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        kept = frame[frame["price"] > LEAST]
        yield pd.DataFrame(
            {"auction": kept["auction"], "bidder": kept["bidder"], "price": kept["price"] * RATE}
        )


def in_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = batch.filter(pc.greater(batch["price"], LEAST))
        columns = [kept["auction"], kept["bidder"], pc.multiply(kept["price"], RATE)]
        yield pa.RecordBatch.from_arrays(columns, names=["auction", "bidder", "price"])
