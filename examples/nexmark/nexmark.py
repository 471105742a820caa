"""The user code of NEXMark's queries 1 and 2: plain functions of a row, nothing of Penstock."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pyspark.sql import Row

EUROS_PER_DOLLAR = Decimal("0.908")
SELECTED_EVERY = 123


def in_euros(bid: Row) -> list[tuple[Any, ...]]:
    """Query 1: every bid with its price converted from dollars."""
    return [(bid.auction, bid.bidder, EUROS_PER_DOLLAR * bid.price, bid.dateTime, bid.extra)]


def selected(bid: Row) -> list[tuple[Any, ...]]:
    """Query 2: bids on every 123rd auction."""
    return [(bid.auction, bid.price)] if bid.auction % SELECTED_EVERY == 0 else []
