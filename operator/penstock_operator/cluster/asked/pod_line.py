"""A process in a worker's pod that answers: the port `asking.line` by the Kubernetes API.

Neighbours: `kubernetes_api.pod_access` starts it, `asked_cluster` chooses the pod.
"""

from __future__ import annotations

import asyncio

import aiohttp

from penstock_operator.asking.line import ANSWERING, LineBroken
from penstock_operator.cluster.kubernetes_api.loop_thread import LoopThread
from penstock_operator.cluster.kubernetes_api.pod_access import (
    ERROR,
    INPUT,
    OUTPUT,
    STATUS,
    PodAccess,
    how_it_ended,
)

COMMAND = ("python", *ANSWERING)
"""As the pod's own process is started."""
_PART_BYTES = 32 << 10
"""Some servers on the way take no larger message."""
_SAID_BYTES_MAX = 64 << 10
_WAIT_S = 30.0


class PodLine:
    """Runs until it is closed. `pods` belongs to the loop."""

    def __init__(self, loop: LoopThread, pods: PodAccess, pod: str, container: str) -> None:
        """Raises what `PodAccess.start` does."""
        self._loop = loop
        self._pod = pod
        self._said = b""
        self._ended = ""
        self._socket = loop.wait(pods.start(pod, container, COMMAND))

    def send(self, data: bytes) -> None:
        self._loop.wait(self._sent(data))

    def receive(self, within_s: float) -> bytes:
        return self._loop.wait(self._received(within_s))

    def close(self) -> None:
        self._loop.wait(self._closed())

    async def _sent(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(_WAIT_S):
                for at in range(0, len(data), _PART_BYTES):
                    await self._socket.send_bytes(bytes([INPUT]) + data[at : at + _PART_BYTES])
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._broken(str(error)) from error

    async def _received(self, within_s: float) -> bytes:
        try:
            async with asyncio.timeout(within_s):
                while True:
                    data = await self._heard()
                    if data:
                        return data
        except TimeoutError:
            raise LineBroken(f"pod {self._pod} has not answered within {within_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(str(error)) from error

    async def _heard(self) -> bytes:
        """What comes next on the process's output; b"" where the next message is something else."""
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise self._broken("the connection is closed")
        stream, data = message.data[0], message.data[1:]
        if stream == OUTPUT:
            return bytes(data)
        if stream == ERROR:
            self._said = (self._said + data)[-_SAID_BYTES_MAX:]
        elif stream == STATUS:
            self._ended = how_it_ended(data)
            raise self._broken("it has ended")
        return b""

    async def _closed(self) -> None:
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._socket.close()
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass  # it is gone as well so

    def _broken(self, why: str) -> LineBroken:
        said = self._said.decode(errors="replace").strip()
        told = said.splitlines()[-1] if said else self._ended or why
        if "No module named" in told:
            told += "; its image is of a version that does not answer: make it with this one"
        return LineBroken(f"what answers in pod {self._pod} is gone: {told}")
