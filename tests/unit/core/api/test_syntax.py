"""Sources are parsed whoever else parses."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.api.syntax import syntax_tree

SOURCE = "def f(x):\n" + "".join(
    f"    if x[{number}](a.b.c(d[e].f(g))):\n        y = [z for z in q if (z + (1 * (2 - {number})))]\n"
    for number in range(60)
)


class Finalized:
    """Garbage whose end lets another thread go on, as a user's objects may."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        sum(range(200))


@pytest.fixture(autouse=True)
def _threads_change_often() -> Iterator[None]:
    interval_s, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    sys.setswitchinterval(interval_s)
    gc.set_threshold(*threshold)


def test_several_threads_may_parse_at_once() -> None:
    """On Python 3.11.7 some of these fail by SystemError where each calls `ast.parse`."""
    faults: list[BaseException] = []

    def parse() -> None:
        try:
            for _ in range(40):
                for _ in range(20):
                    Finalized()
                syntax_tree(SOURCE)
        except BaseException as fault:  # noqa: BLE001 - told below
            faults.append(fault)

    threads = [threading.Thread(target=parse) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
