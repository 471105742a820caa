"""What the environment tells a node agent; the operator writes it into the node store's pod.

PENSTOCK_NAMESPACE            where the Schedules are
PENSTOCK_NAMESPACES_FILE      further namespaces whose Schedules are carried out, a line each; it may change
PENSTOCK_NODE                 the node that this is; of a further store of a node, the store's id
PENSTOCK_STORE_ID             the store's id; the node's name where it is not given
PENSTOCK_STORE_URL            this node's store, redis://agent@127.0.0.1:6379; other stores are reached with
                              the same user, and the password in PENSTOCK_STORE_PASSWORD_FILE
PENSTOCK_STORE_USERS_FILE     the store's users with the hashes of their passwords, which the agent keeps the
                              running server to; without it nobody's passwords are looked after
PENSTOCK_STORE_DURABILITY     Process or Disk: what this store can keep
PENSTOCK_STORE_MEMORY_BYTES   the store's memory limit (maxmemory); 0 leaves the server's
PENSTOCK_STORE_DATA_DIR       where the agent sees the volume that the store writes to, for its metrics
PENSTOCK_AGENT_PORT           /healthz and /metrics; 9091
PENSTOCK_KUBECONFIG           outside of a cluster: the kubeconfig file
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import PermanentError
from penstock.store.redis.connection import url_beside

_DEFAULT_PORT = 9091


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One agent: whose it is and where things are. `memory_bytes` 0: the server's own limit stays."""

    namespace: str
    node: str
    store_id: str
    store_url: str
    durability: str = "Process"
    memory_bytes: int = 0
    port: int = _DEFAULT_PORT
    kubeconfig: str | None = None
    data_dir: str | None = None
    users_file: str | None = None
    namespaces_file: str | None = None

    def peer_url(self, address: str) -> str:
        """The URL of another store, from its address (host:port) in a Schedule."""
        return url_beside(self.store_url, address)


def settings_from(environment: Mapping[str, str]) -> AgentSettings:
    """Raises PermanentError, one sentence for the first variable that is missing or wrong."""

    def needed(name: str) -> str:
        value = environment.get(name, "")
        if not value:
            raise PermanentError(f"the environment variable {name} is not set; the node agent needs it")
        return value

    def number(name: str, default: int) -> int:
        text = environment.get(name, "") or str(default)
        if not text.isdecimal():
            raise PermanentError(f"the environment variable {name} is {text!r}; it must be a whole number")
        return int(text)

    node = needed("PENSTOCK_NODE")
    durability = environment.get("PENSTOCK_STORE_DURABILITY", "") or "Process"
    if durability not in {"Process", "Disk"}:
        raise PermanentError(f"PENSTOCK_STORE_DURABILITY is {durability!r}; it must be Process or Disk")
    return AgentSettings(
        namespace=needed("PENSTOCK_NAMESPACE"),
        node=node,
        store_id=environment.get("PENSTOCK_STORE_ID", "") or node,
        store_url=needed("PENSTOCK_STORE_URL"),
        durability=durability,
        memory_bytes=number("PENSTOCK_STORE_MEMORY_BYTES", 0),
        port=number("PENSTOCK_AGENT_PORT", _DEFAULT_PORT),
        kubeconfig=environment.get("PENSTOCK_KUBECONFIG") or None,
        data_dir=environment.get("PENSTOCK_STORE_DATA_DIR") or None,
        users_file=environment.get("PENSTOCK_STORE_USERS_FILE") or None,
        namespaces_file=environment.get("PENSTOCK_NAMESPACES_FILE") or None,
    )
