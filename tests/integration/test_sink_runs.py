"""Sinks as users run them, through the suite: `penstock run`, killed in parts and whole, and gone on with by
another number of workers; then what is there is read from outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from penstock.testing.connectors import SinkRuns
from scenes.users_sinks import rows_in_ledger

HELD_BY_WRITERS = pytest.mark.slow(
    held_by="test_an_owner_that_is_cut_at_any_step_leaves_the_rest_to_the_next_one"
)
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), HELD_BY_WRITERS]


class TestStreamWriter(SinkRuns):
    """A data source of a user's."""

    def sink(self, folder: Path) -> dict[str, Any]:
        options = {"folder": str(folder / "ledger")}
        return {"dataSource": {"class": "scenes.users_sinks:Ledger", "options": options}}

    def read_back(self, folder: Path) -> list[Any]:
        return rows_in_ledger(folder / "ledger")


class TestForeachBatch(SinkRuns):
    """Spark's writer of Parquet, a folder for each batch."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("BATCHES", os.fspath(tmp_path))

    def sink(self, folder: Path) -> dict[str, Any]:
        return {"foreachBatch": {"call": "scenes.users_batches:to_parquet"}}

    def read_back(self, folder: Path) -> list[Any]:
        """The batches by their ids."""
        batches = sorted((folder / "parquet").glob("batch=*"), key=lambda at: int(at.name.split("=")[1]))
        rows = [row for at in batches for row in parquet.read_table(at, partitioning=None).to_pylist()]
        return [(row["word"], row["number"]) for row in rows]
