"""Ports that a test's own servers may take, on loopback."""

from __future__ import annotations

import itertools
import os
import socket

_LANE = 3_000
_FIRST = 20_000 + _LANE * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""Each of the processes that run tests side by side (up to four) has ports of its own."""
_PORTS = itertools.cycle(range(_FIRST + os.getpid() % (_LANE // 2), _FIRST + _LANE))
"""Below those that the kernel gives to connections; no port comes twice within a run."""


def free_port() -> int:
    """A port that nobody listens on; asking the kernel for one may give what a connection takes meanwhile."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("there is no end of ports")
