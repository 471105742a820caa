"""Ports that a test's own servers may take, on loopback."""

from __future__ import annotations

import itertools
import os
import socket

_PORTS = itertools.cycle(range(20_000 + os.getpid() % 8_000, 32_000))
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
