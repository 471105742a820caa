"""Sources as users run them, through the suite: `penstock run`, killed in parts and whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.testing.connectors import SourceRuns

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


class TestStreamReader(SourceRuns):
    """A data source of a user's. It is the one of these that runs each time."""

    def topology_source(self, folder: Path) -> dict[str, Any]:
        options = {"upTo": "3000", "perRange": "70", "partitions": "1", "rowsPerSecond": "300"}
        return {
            "dataSource": {
                "class": "scenes.users_sources:Counter",
                "schema": "number bigint, partition int",
                "options": options,
            }
        }

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {"0": [(number, 0) for number in range(3000)]}
