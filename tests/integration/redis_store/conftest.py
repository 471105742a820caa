"""A private redis-server for a module's tests, empty for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from backends.store_fixtures import RedisBackend
from scenes.store_scenario import Scene


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBackend]:
    backend = RedisBackend(tmp_path_factory.mktemp("nodes"))
    yield backend
    backend.stop()


@pytest.fixture
def backend(nodes: RedisBackend) -> RedisBackend:
    nodes.empty()
    return nodes


@pytest.fixture
def scene(backend: RedisBackend) -> Scene:
    return Scene(backend.open_store())


@pytest.fixture
def admin(backend: RedisBackend, scene: Scene) -> Iterator[redis.Redis]:
    with backend.admin() as client:
        yield client
