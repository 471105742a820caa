"""Every contract test that asks for `backend` or `scene` runs on both adapters of the store's port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backends.store_backends import Backend, MemoryBackend
from backends.store_fixtures import RedisBackend
from scenes.move_scene import MoveScene
from scenes.store_scenario import Scene


@pytest.fixture(scope="session")
def redis_backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBackend]:
    """Private redis-servers that live as long as the session; started when a test first asks."""
    backend = RedisBackend(tmp_path_factory.mktemp("nodes"))
    yield backend
    backend.stop()


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.integration)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    if request.param == "memory":
        yield MemoryBackend()
        return
    redis_backend: RedisBackend = request.getfixturevalue("redis_backend")
    yield redis_backend
    redis_backend.empty()


@pytest.fixture
def scene(backend: Backend) -> Scene:
    """One store without anything."""
    return Scene(backend.open_store())


@pytest.fixture
def moving(backend: Backend) -> MoveScene:
    """A topology over two stores, to and fro between which shards move."""
    return MoveScene(backend)
