"""What users' commands ask of pods by the Kubernetes API: a process in one, and what one wrote.

The operator itself asks neither, and has no right to. Neighbour: `client` has the other requests.
"""

from __future__ import annotations

import aiohttp
import msgspec

from penstock.errors import PenstockError
from penstock_operator.cluster.kubernetes_api.client import error_of
from penstock_operator.cluster.kubernetes_api.port import PODS, ClusterUnreachable, NotAllowed
from penstock_operator.kubernetes_client.json_requests import CONNECT_TIMEOUT_S, KubernetesJson, parsed

PROTOCOL = "v4.channel.k8s.io"
INPUT, OUTPUT, ERROR, STATUS = range(4)
"""The first byte of each message: which stream of the process it is of; the last one is how it ended."""
LOG_BYTES_MAX = 16 << 20
_LOG_S = 30.0


class PodGone(ClusterUnreachable):
    """There is no such pod, or no such container that runs."""


class PodAccess:
    """Pods of one namespace. Belongs to one event loop. Calls raise `port`'s errors, and PodGone."""

    def __init__(self, api: KubernetesJson, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def start(
        self, pod: str, container: str, command: tuple[str, ...]
    ) -> aiohttp.ClientWebSocketResponse:
        """Start a process in a pod; its streams, to be closed by the caller, which ends its input."""
        query = [
            ("container", container),
            *(("command", word) for word in command),
            *((stream, "true") for stream in ("stdin", "stdout", "stderr")),
        ]
        opened = await self._api.socket(f"{self._path(pod)}/exec", query, PROTOCOL)
        if isinstance(opened, aiohttp.ClientWebSocketResponse):
            return opened
        status, answer = opened
        if status == 403:
            raise NotAllowed(
                f"the Kubernetes API refuses to start a process in pod {pod}: it takes the rights to get and"
                f" create pods/exec in namespace {self._namespace}, which the role edit has"
            )
        raise self._fault("start a process in", pod, status, answer)

    async def log(self, pod: str, container: str, last: int) -> str:
        """The last lines that a container wrote since its start, `LOG_BYTES_MAX` of them at the most."""
        query = {"container": container, "tailLines": str(last), "limitBytes": str(LOG_BYTES_MAX)}
        timeout = aiohttp.ClientTimeout(total=_LOG_S, connect=CONNECT_TIMEOUT_S)
        response = await self._api.open("GET", f"{self._path(pod)}/log", timeout, query, accept="*/*")
        try:
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterUnreachable(f"the log of pod {pod} breaks off: {error}") from error
        if response.status != 200:
            raise self._fault("read the log of", pod, int(response.status), parsed(data))
        return data.decode(errors="replace")

    def _path(self, pod: str) -> str:
        return f"{PODS.root}/namespaces/{self._namespace}/{PODS.plural}/{pod}"

    def _fault(self, verb: str, pod: str, status: int, answer: dict[str, object]) -> PenstockError:
        if status in (400, 404, 409):
            return PodGone(f"pod {pod} does not run ({answer.get('message') or status})")
        return error_of(verb, PODS, status, answer)


def how_it_ended(data: bytes) -> str:
    """What the last message of a process says, in words; "" where it says that nothing is wrong."""
    try:
        status = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode(errors="replace")
    if not isinstance(status, dict) or status.get("status") == "Success":
        return ""
    return str(status.get("message") or status.get("reason") or "it failed")
