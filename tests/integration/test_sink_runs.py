"""Sinks as users run them, through the suite: `penstock run`, killed in parts and whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.connectors import SinkRuns

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


class TestStreamWriter(SinkRuns):
    """A data source of a user's."""

    def sink(self, folder: Path) -> dict[str, Any]:
        options = {"folder": str(folder / "ledger")}
        return {"dataSource": {"class": "scenes.users_sinks:Ledger", "options": options}}

    def read_back(self, folder: Path) -> list[Any]:
        batches = sorted((folder / "ledger").glob("*.json"), key=lambda file: int(file.stem))
        return [tuple(row.values()) for file in batches for row in json.loads(file.read_text())]
