"""This node's redis-server as the agent looks after it: started anew? library, settings, the store's opening.

Works on one connection of the keeper's thread. Neighbours: `store_keeper` decides when, `redis.store` and
`wire` are what it speaks through.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from penstock.errors import PermanentError
from penstock.store.port import OpenStore, StoreMemory
from penstock.store.redis.connection import ServerError, Wire, translate
from penstock.store.redis.measures import memory_use
from penstock.store.redis.store import RedisStore, load_functions
from penstock.store.redis.users import read_users, topology_rules, topology_user
from penstock.store.redis.worker_users import Hashes, read_worker_users, worker_users_digest

_TIMEOUT_S = 5.0
_CROWDED_SHARE = 0.9
_NOBODY = b"penstock:nobody"
"""A channel that nothing is ever sent to: who listens to it learns at once when the server is gone."""


class StoreServer:
    """Not thread safe."""

    def __init__(self, url: str, store_id: str) -> None:
        self._url = url
        self._store_id = store_id
        self._wire = Wire(url, _TIMEOUT_S)
        self._listening = Wire(url, _TIMEOUT_S)
        self._to_end: dict[str, None] = {}
        """Users who lost a password, and whose connections have not been ended yet."""

    def run_id(self) -> str:
        """The server's own name for its run. Raises StoreUnreachable while it is away or loads."""
        info: bytes = self._ask(b"INFO", b"server")
        fields = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
        return fields["run_id"]

    def load_library(self) -> bool:
        """Load the function libraries unless exactly these are there; True when something was loaded.

        Raises ProtocolMismatch for a server that is too old, or whose content is of a version too far away.
        """
        return load_functions(self._url)

    def open(self, run_id: str) -> int:
        """Open the store for this run of the server; answers its generation."""
        store = RedisStore(self._url, "agent")
        try:
            return store.call(OpenStore(self._store_id, run_id))
        finally:
            store.close()

    def set(self, **settings: str) -> None:
        """Change settings of the running server; what is so already is left alone."""
        for name, value in settings.items():
            key = name.replace("_", "-").encode()
            if self._ask(b"CONFIG", b"GET", key).get(key) != value.encode():
                self._ask(b"CONFIG", b"SET", key, value)

    def worker_users_digest(self) -> bytes:
        """Another one whenever the operator has told other users of topologies."""
        return worker_users_digest(self._wire)

    def worker_users(self) -> Hashes:
        """What the operator has told of them. Raises PermanentError for what is none."""
        return read_worker_users(self._wire)

    def set_users(self, text: str, of_topologies: Hashes) -> tuple[str, ...]:
        """Bring the running server's users to those of a users file, and of topologies; a server reads the
        file at its start only, and of the others nothing.

        Who lost a password loses the connections too, since any of them may have logged in with that one; it
        is answered who did. So does who is gone, by the server itself. Nobody else is disturbed. Raises
        PermanentError for a file that is none.
        """
        wanted = read_users(text)
        wanted |= {topology_user(uid): topology_rules(uid, hashes) for uid, hashes in of_topologies.items()}
        for user, rules in wanted.items():
            held = self._ask(b"ACL", b"GETUSER", user) or {}
            if {f"#{one.decode()}" for one in held.get(b"passwords", ())} - set(rules):
                self._to_end[user] = None
            self._ask(b"ACL", b"SETUSER", user, b"reset", *rules)
        others = {user.decode() for user in self._ask(b"ACL", b"USERS")} - wanted.keys()
        if others:
            self._ask(b"ACL", b"DELUSER", *sorted(others))
        lost = tuple(user for user in self._to_end if user in wanted)
        for user in lost:
            self._ask(b"CLIENT", b"KILL", b"USER", user, b"SKIPME", b"yes")
        self._to_end.clear()
        if lost:
            self._listening.close()
        return lost

    def end_user(self, topology_uid: str) -> None:
        """Have no user for this topology's workers any more, nor a connection of theirs."""
        self._ask(b"ACL", b"DELUSER", topology_user(topology_uid))

    def put_out_a_crowd(self) -> str:
        """Where the server takes hardly any connection more, and one topology's user has more than half of
        all, end those; answers whose they were, "" for nobody's."""
        info: bytes = self._ask(b"INFO", b"clients")
        fields = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
        connected = int(fields["connected_clients"])
        if connected < _CROWDED_SHARE * int(fields["maxclients"]):
            return ""
        users = Counter(re.findall(rb" user=(\S+)", self._ask(b"CLIENT", b"LIST")))
        ((user, count),) = users.most_common(1)
        if not user.startswith(topology_user("").encode()) or 2 * count <= connected:
            return ""
        self._ask(b"CLIENT", b"KILL", b"USER", user)
        return str(user.decode())

    def memory(self) -> StoreMemory:
        """What it uses, and its limit as it is now."""
        return memory_use(self._ask(b"INFO", b"memory"))

    def listen(self, seconds: float) -> None:
        """Pass the time, or raise StoreUnreachable as soon as the server is gone."""
        if not self._listening.is_open:
            self._listening.exchange([(b"SUBSCRIBE", _NOBODY)])
        self._listening.pushed(seconds)

    def close(self) -> None:
        self._wire.close()
        self._listening.close()

    def _ask(self, *command: bytes | str) -> Any:
        (reply,) = self._wire.exchange([command])
        if isinstance(reply, ServerError):
            error = translate(str(reply))
            if isinstance(error, ServerError):
                raise PermanentError(f"the store at {self._wire.url} does not take {command[0]!r}: {error}")
            raise error
        return reply
