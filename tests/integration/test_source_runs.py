"""Sources as users run them, through the suite: `penstock run`, killed in parts and whole, and gone on with
by another number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.testing.connectors import SourceRuns

HELD_BY_READERS = pytest.mark.slow(held_by="test_owners_that_are_killed_at_any_step_lose_and_double_nothing")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900), HELD_BY_READERS]


class TestStreamReader(SourceRuns):
    """A data source of a user's."""

    def topology_source(self, folder: Path) -> dict[str, Any]:
        options = {"upTo": "3000", "perRange": "70", "partitions": "1", "rowsPerSecond": "300"}
        source = {"class": "scenes.users_sources:Counter", "schema": "number bigint, partition int"}
        return {"dataSource": {**source, "options": options}}

    def expected(self, folder: Path) -> dict[str, list[Any]]:
        return {"0": [(number, 0) for number in range(3000)]}
