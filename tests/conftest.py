"""What holds for every tier: property tests draw the same cases in each run, and are not timed; a test of the
slow lane names the one that holds its promise where it does not run."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("penstock", deadline=None, derandomize=True)
settings.load_profile("penstock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("slow"):
            if set(mark.kwargs) != {"held_by"} or mark.args:
                raise pytest.UsageError(f'{item.nodeid}: @pytest.mark.slow(held_by="test_...")')
