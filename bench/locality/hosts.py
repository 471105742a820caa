"""Hosts as network namespaces of this machine, on a switch of their own, each with a link of so many bits.

Nothing is made outside of namespaces that this makes: the switch is a bridge in one, a host another, a pair
of veth devices between them is the host's link, and `tc tbf` bounds both of its directions, as a network card
does. The machine's own devices, routes and filters are not touched, and nothing here reaches another network.
They go when the context is left, on Ctrl-C and on SIGTERM too; what a bench left that was killed goes when
the next one begins. Neighbours: `nodes` runs stores, agents and workers on hosts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_PREFIX = "penstock-bench-"
MTU_BYTES = 9000
"""Jumbo frames, as in the paper."""
FRAME_BYTES = 14 + 20 + 32
"""Ethernet, IP, TCP with timestamps: what is around the bytes of a frame."""
_BURST_S = 0.004
_BURST_BYTES_MIN = 2 * MTU_BYTES
_QUEUE_MS = 500
"""How long a frame waits for its turn at most; then it is dropped. Long, since links are slow and windows are
those of fast ones: a queue that drops measures TCP's timers."""
_LINK = "eth0"


class NoHostsError(Exception):
    """Namespaces cannot be made here; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class LinkBytes:
    """What went through a host's link since it was made, headers included."""

    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class Host:
    """One namespace."""

    namespace: str
    address: str

    def command(self, command: Sequence[str]) -> list[str]:
        """`command` as it is run on this host."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def link(self) -> LinkBytes:
        told = json.loads(_run("ip", "-n", self.namespace, "-s", "-j", "link", "show", "dev", _LINK))
        found = told[0]["stats64"]
        return LinkBytes(found["tx"]["bytes"], found["rx"]["bytes"])


class Network:
    """So many hosts on one switch, while used as a context. Raises NoHostsError."""

    def __init__(self, hosts: int) -> None:
        mine = f"{_PREFIX}{os.getpid()}"
        self._switch = f"{mine}-switch"
        self.hosts = [Host(f"{mine}-{number}", f"10.99.0.{number + 1}") for number in range(hosts)]

    def __enter__(self) -> Network:
        sweep()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def throttle(self, bits_per_s: int) -> None:
        """Bound each link, in both directions."""
        burst = max(_BURST_BYTES_MIN, int(bits_per_s / 8 * _BURST_S))
        bound = ["tbf", "rate", f"{bits_per_s}bit", "burst", str(burst), "latency", f"{_QUEUE_MS}ms"]
        for number, host in enumerate(self.hosts):
            for namespace, device in ((host.namespace, _LINK), (self._switch, f"port{number}")):
                _run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *bound)

    def _make(self) -> None:
        for namespace in (self._switch, *(host.namespace for host in self.hosts)):
            _run("ip", "netns", "add", namespace)
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
        _run("ip", "-n", self._switch, "link", "add", "bridge", "mtu", str(MTU_BYTES), "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
        for number, host in enumerate(self.hosts):
            port, mtu = f"port{number}", ("mtu", str(MTU_BYTES))
            peer = ("peer", "name", _LINK, *mtu, "netns", host.namespace)
            _run("ip", "-n", self._switch, "link", "add", port, *mtu, "type", "veth", *peer)
            _run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")
            _run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", _LINK)
            _run("ip", "-n", host.namespace, "link", "set", _LINK, "up")

    def _remove(self) -> None:
        with _undisturbed():
            for namespace in (*(host.namespace for host in self.hosts), self._switch):
                _remove(namespace)


def sweep() -> None:
    """Remove what benches left that do not live any more. Raises NoHostsError."""
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0] if line.strip() else ""
        owner = name.removeprefix(_PREFIX).split("-")[0]
        if name.startswith(_PREFIX) and owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            _remove(name)


def _remove(namespace: str) -> None:
    """A device goes with its namespace, and with it its other end."""
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


class _undisturbed:  # noqa: N801 - reads as a verb
    """Ctrl-C waits until this is over."""

    def __enter__(self) -> None:
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main:
            self._before = [
                (number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGINT, signal.SIGTERM)
            ]

    def __exit__(self, *error: object) -> None:
        if self._is_main:
            for number, handler in self._before:
                signal.signal(number, handler)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoHostsError(f"there is no {command[0]}; hosts are made with iproute2") from None
    if done.returncode:
        told = done.stderr.strip() or f"exit code {done.returncode}"
        raise NoHostsError(
            f"{' '.join(command)}: {told}; hosts are network namespaces, which only root may make "
            "(CAP_SYS_ADMIN and CAP_NET_ADMIN), with the kernel's veth, bridge and sch_tbf"
        )
    return done.stdout
