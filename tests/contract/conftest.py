"""Every contract test that asks for `backend` or `scene` runs on both adapters of the store's port."""

from __future__ import annotations

import pytest

from store_backends import Backend, MemoryBackend
from store_scenario import Scene


@pytest.fixture(params=["memory"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return MemoryBackend()


@pytest.fixture
def scene(backend: Backend) -> Scene:
    """One store without anything."""
    return Scene(backend.open_store())
