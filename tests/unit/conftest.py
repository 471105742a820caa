"""What holds for every unit test: the user code that one test writes is not another one's."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

USER_MODULE = "loop_code"
"""The scenes' user code: a module of this name in the folder of the test."""


@pytest.fixture(autouse=True)
def _own_user_code() -> Iterator[None]:
    """Loading it puts the module's folder on `sys.path`; both stay for as long as the test takes."""
    path = list(sys.path)
    sys.modules.pop(USER_MODULE, None)
    yield
    sys.modules.pop(USER_MODULE, None)
    sys.path[:] = path
