"""The thread that keeps this node's store open: waits for its server, opens the store at each start of it.

A server that was started anew may have lost a suffix of its log, and its ready lists; the store's generation
is raised at once, so that every owner claims anew. The server's users follow the file that lists them, which
changes when passwords are rotated, and what the operator writes into the store of topologies' users.
Neighbours: `store_server` has the commands, `node_agent` listens to what is told here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError, PermanentError
from penstock.store.port import StoreMemory, StoreUnreachable
from penstock.store.redis.users import PROBE, read_users
from penstock.store.redis.worker_users import Hashes
from penstock_operator.agent.kept_thread import KeptThread, ThreadFaults
from penstock_operator.agent.store_server import StoreServer

_LOG = logging.getLogger(__name__)

_LOOK_S = 0.02
_LISTEN_S = 0.25
_PERMANENT_S = 1.0
_CLIENTS = {
    # values, and so what one write may put above the memory limit
    "proto_max_bulk_len": str(32 << 20),
    # of one connection that asks and does not read, and of all together
    "client_output_buffer_limit": f"normal {64 << 20} 0 0",
    "maxmemory_clients": "20%",
}
"""What users can make the server hold beside what it stores: without bounds, that is all of its pod."""
_FULL_SHARE, _ROOM_SHARE = 0.98, 0.9
"""Of the limit: a store whose sources wait goes up and down a little below it."""


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """One opening of the store. `generation` belongs to this run of the server."""

    run_id: str
    generation: int


class StoreKeeper:
    """Tells of each opening and each loss; `opened` and `fault` are the state now, for any thread."""

    def __init__(
        self,
        server: StoreServer,
        memory_bytes: int,
        changed: Callable[[OpenedStore | None], None],
        faults: ThreadFaults | None = None,
        users_file: str | None = None,
    ) -> None:
        self._server = server
        self._users_file = Path(users_file) if users_file is not None else None
        self._users: tuple[str, bytes] | None = None
        """What that file said, and the digest of topologies' users, when the server was brought to them."""
        self._good_file = ""
        """The newest that said who the users are."""
        self._of_topologies: Hashes = {}
        self._users_lock = threading.Lock()
        self._ended: set[str] = set()
        """Topologies that are gone, of which the operator has not told it yet."""
        self._memory_bytes = memory_bytes
        self._changed = changed
        self._stopped = threading.Event()
        self._thread = KeptThread("store-keeper", self._run, faults or ThreadFaults(), self._stopped)
        self.opened: OpenedStore | None = None
        self.fault = "not looked at yet"
        self.memory = StoreMemory(0, 0)
        self._is_full = False

    @property
    def full_of_bytes(self) -> int:
        """The store's memory limit while it is at it, else 0."""
        return self.memory.limit_bytes if self._is_full else 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end by itself; does not wait."""
        self._stopped.set()

    def users(self) -> Collection[str]:
        """The topologies that the operator has told users of, as far as that was read."""
        return self._of_topologies.keys() - {PROBE}

    def end_user(self, topology_uid: str, server: StoreServer) -> None:
        """A topology is gone: its workers write nothing from here on, whenever the operator tells of it.
        `server` is the calling thread's. Raises what calls to the store raise."""
        if self._users_file is not None:
            with self._users_lock:
                self._ended.add(topology_uid)
                server.end_user(topology_uid)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._keep_open()
                except StoreUnreachable as error:
                    self._lost(str(error))
                    self._stopped.wait(_LOOK_S)
                except PenstockError as error:
                    self._lost(str(error))
                    self._stopped.wait(_PERMANENT_S)
        finally:
            if not self._stopped.is_set():
                self._lost("a bug keeps the agent from looking after it: see its log")
            self._server.close()

    def _keep_open(self) -> None:
        """Open the store, and stay while this run of the server does."""
        run_id = self._server.run_id()
        # A server that was started anew has read the file, but maybe as it was before.
        self._users = None
        self._keep_users()
        if self._server.load_library():
            _LOG.info("loaded the function library into the store")
        self._server.set(maxmemory_policy="noeviction", **_CLIENTS)
        if self._memory_bytes:
            self._server.set(maxmemory=str(self._memory_bytes))
        opened = OpenedStore(run_id, self._server.open(run_id))
        _LOG.info("the store is open, generation %d", opened.generation)
        self.opened, self.fault = opened, ""
        self._changed(opened)
        while not self._stopped.is_set():
            self._look_at_memory()
            if crowd := self._server.put_out_a_crowd():
                _LOG.error("the store takes no connections any more: those of %s are ended", crowd)
            self._keep_users()
            self._server.listen(_LISTEN_S)
            if self._server.run_id() != run_id:
                raise StoreUnreachable("the server was started anew")

    def _keep_users(self) -> None:
        """Let the server know the passwords that are good now, and no others: its users' file lists some, the
        operator has told those of topologies."""
        if self._users_file is None:
            return
        try:
            text = self._users_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            text = f"{self._users_file}: {error}"
        digest = self._server.worker_users_digest()
        if (text, digest) == self._users:
            return
        self._users = (text, digest)
        try:
            read_users(text)
            self._good_file = text
        except PermanentError as error:
            _LOG.error("the store keeps the users that it has: %s", error)
        try:
            self._of_topologies = self._server.worker_users()
            self._ended &= self._of_topologies.keys()
        except PermanentError as error:
            _LOG.error("the store keeps the topologies' users that it has: %s", error)
        if not self._good_file:
            return
        try:
            with self._users_lock:
                living = {uid: one for uid, one in self._of_topologies.items() if uid not in self._ended}
                lost = self._server.set_users(self._good_file, living)
        except PermanentError as error:
            _LOG.error("the store may not know all of its users: %s", error)
        else:
            told = "the store knows the users of its file, and of %d topologies; ended connections of: %s"
            _LOG.info(told, len(self._of_topologies.keys() - {PROBE}), lost or "none")

    def _look_at_memory(self) -> None:
        self.memory = self._server.memory()
        if not self.memory.limit_bytes:
            return
        used = self.memory.used_bytes / self.memory.limit_bytes
        if not self._is_full and used >= _FULL_SHARE:
            self._is_full = True
            _LOG.warning(
                "the store is at its memory limit of %d MiB: sources wait until what is here is worked off;"
                " if state fills it, give it more (store.memory of the chart)",
                self.memory.limit_bytes >> 20,
            )
        elif self._is_full and used < _ROOM_SHARE:
            self._is_full = False
            _LOG.info("the store has memory again")

    def _lost(self, why: str) -> None:
        if self.opened is not None or self.fault != why:
            _LOG.warning("the store is away: %s", why)
        had, self.opened, self.fault = self.opened, None, why
        if had is not None:
            self._changed(None)
