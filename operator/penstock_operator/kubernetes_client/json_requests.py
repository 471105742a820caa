"""JSON over the client of the Kubernetes API: a request with its timeouts, the answer's status and object.

The client's generated models are left aside: an object that goes through them loses what they do not know.
Nothing is retried, and no status is an error here: that is for the two that use it to say
(`cluster.kubernetes_api.client`, `agent.kubernetes_feed`). Neighbour: `login` makes the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException

from penstock.errors import RetryError

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
CONNECT_TIMEOUT_S = 5.0
_TIMEOUT_S = 10.0

Object = dict[str, Any]


class KubernetesJson:
    """Belongs to one event loop. `away` is what is raised, with a sentence, when no answer can be had."""

    def __init__(self, client: ApiClient, away: type[RetryError]) -> None:
        self._client = client
        self._away = away

    async def close(self) -> None:
        await self._client.close()

    async def ask(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = JSON,
    ) -> tuple[int, Object]:
        """The status, and the object or what there is of it."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        response = await self.open(verb, path, timeout, query, body, content)
        try:
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(error) from error
        return int(response.status), parsed(data)

    async def open(
        self,
        verb: str,
        path: str,
        timeout: aiohttp.ClientTimeout,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = JSON,
        accept: str = JSON,
    ) -> aiohttp.ClientResponse:
        """The answer as a stream; to be closed by the caller."""
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content
        try:
            request = await self._client.param_serialize(
                verb,
                path,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer: Any = await self._client.call_api(*request, _request_timeout=timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(error) from error
        except ConfigException as error:
            raise self._away(f"the service account's token cannot be read: {error}") from error
        response: aiohttp.ClientResponse = answer.response
        return response

    async def socket(
        self, path: str, query: Sequence[tuple[str, str]], protocol: str
    ) -> aiohttp.ClientWebSocketResponse | tuple[int, Object]:
        """A web socket, to be closed by the caller; or the status by which it is refused, and why."""
        try:
            request = await self._client.param_serialize(
                "GET", path, query_params=list(query), auth_settings=["BearerToken"]
            )
            _, url, headers, *_ = request
            session = self._session()
            async with asyncio.timeout(_TIMEOUT_S):
                opened: aiohttp.ClientWebSocketResponse = await session.ws_connect(
                    url, headers=headers, protocols=(protocol,), **self._connecting()
                )
                return opened
        except aiohttp.WSServerHandshakeError as error:
            return error.status, {"message": error.message}
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._no_answer(error) from error
        except ConfigException as error:
            raise self._away(f"the service account's token cannot be read: {error}") from error

    def _session(self) -> aiohttp.ClientSession:
        """The one that requests go by: it has the certificates."""
        rest = self._client.rest_client
        if rest.pool_manager is None:
            rest.pool_manager = rest._create_pool_manager()  # noqa: SLF001 - as its own web socket client does
        session: aiohttp.ClientSession = rest.pool_manager
        return session

    def _connecting(self) -> dict[str, Any]:
        """How the client reaches the server, as its requests do."""
        configuration = self._client.configuration
        given = {
            "server_hostname": configuration.tls_server_name,
            "proxy": configuration.proxy,
            "proxy_headers": configuration.proxy_headers,
        }
        return {name: value for name, value in given.items() if value}

    def _no_answer(self, error: Exception) -> RetryError:
        return self._away(f"the Kubernetes API does not answer: {str(error) or type(error).__name__}")


def parsed(data: bytes) -> Object:
    """An answer's body as an object; what is none stands under "message"."""
    try:
        answer = msgspec.json.decode(data) if data else {}
    except ValueError:  # of either kind: msgspec's own, or bytes that are no text
        answer = {"message": data[:200].decode(errors="replace")}
    return answer if isinstance(answer, dict) else {"message": str(answer)}
