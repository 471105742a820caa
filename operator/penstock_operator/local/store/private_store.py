"""The private node store of `penstock run`: one redis-server on a unix socket, in the state directory.

It starts the server, waits until what is on disk is loaded, loads the function library and raises the store's
generation. Only then does the socket appear under its public name, so that no worker meets a store that
another start of it may still outdate. Neighbours: `redis.store` speaks to it, `run_start` starts it,
`local_run` keeps it running.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from penstock.errors import PermanentError
from penstock.process_look import STOPPED, look_at
from penstock.store.port import OpenStore, ProtocolMismatch, StoreFull, StoreUnreachable
from penstock.store.redis.connection import Wire
from penstock.store.redis.store import RedisStore, load_functions
from penstock_operator.local.processes.parent_death import ends_with_starter

_SOCKET_PATH_BYTES_MAX = 107
"""What the kernel's address of a unix socket holds, without the final zero."""
_PUBLIC = "store.sock"
_OPENING = "opening.sock"
_LOG_BYTES_MAX = 16 << 20
_LOG_TAIL_BYTES = 8 << 10
_ROOM_BYTES_MIN = 64 << 10
"""A disk with less is full: what a server writes when it starts does not find room."""
_STOP_S = 20.0
_STOP_LOOK_S = 0.1
_ANSWER_S = 1.0
_STOPPED_S = 2.0
"""A server that was stopped as it starts is killed after so long."""
_END_S = 1.0
_LOCK_WAIT_S = 10.0
_POLL_S = 0.01
_FSYNC = {"Process": "no", "Disk": "always"}
_SERVERS = ("redis-server", "valkey-server")
_VERSIONS_MIN = {"redis": (7, 0), "valkey": (7, 2)}
_INSTALL = "install Redis 7.0 or newer (Debian, Ubuntu: apt-get install redis-server)"


class PrivateStoreError(PermanentError):
    """The private store cannot run; the message is one sentence that says what to do. `disk_full`: it can
    once there is room. `killed`: its server was, as it started."""

    def __init__(self, message: str, *, disk_full: bool = False, killed: bool = False) -> None:
        super().__init__(message)
        self.disk_full = disk_full
        self.killed = killed


class PrivateStore:
    """The redis-server of one state directory. Not thread safe, but any thread may use it."""

    def __init__(
        self,
        state_dir: Path,
        durability: str,
        store_id: str = "local",
        *,
        memory_bytes: int | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """All is kept in `state_dir`/store. `durability` is Process or Disk. `memory_bytes` bounds what the
        store may hold; by default a quarter of the machine's memory."""
        self._folder = state_dir.absolute() / "store"
        self._fsync = _FSYNC[durability]
        self._store_id = store_id
        self._memory_bytes = _quarter_of_memory() if memory_bytes is None else memory_bytes
        self._clock_s = clock_s
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        # the kernel kills the server when the thread that started it ends, so one thread starts it and stays
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store-starter")
        self._sockets = self._folder
        self._log_start = 0
        self._server = ""
        self._ending = threading.Event()
        self._is_told: Callable[[], bool] = lambda: False
        self.generation = 0
        """The store's generation since its last start."""

    def start(self, is_told: Callable[[], bool] = lambda: False) -> int:
        """Start, load, open; answers the store's generation. `is_told` is asked whether to give it up.

        Raises PrivateStoreError: no redis-server or one too old, another run has the directory, the
        directory or what is in it cannot be used.
        """
        self._is_told = is_told
        self._server = find_server()
        self._make_folder()
        self._take_lock()
        try:
            return self._launch()
        except BaseException:
            self.stop()
            raise

    def restart_if_dead(self) -> bool:
        """Start the server again when it is gone; True when that was so. Raises PrivateStoreError."""
        if self._process is None or self._process.poll() is None:
            return False
        self._launch()
        return True

    def end_start(self) -> None:
        """From another thread: let a start that is under way fail soon. `stop` is to follow."""
        self._ending.set()

    def kill(self) -> None:
        """End a server that does not answer. All that it has answered is in its log."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """Have the server write everything out and end; give the directory free. Twice is once.

        `is_urgent` is asked while it is waited for, and ends the wait. Nothing is lost by that: what the
        server has answered is in its log.
        """
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            # One that was stopped hears nothing before it goes on.
            process.send_signal(signal.SIGCONT)
            deadline_s = self._clock_s() + _STOP_S
            while process.poll() is None:
                if is_urgent():
                    deadline_s = min(deadline_s, self._clock_s() + _END_S)
                if self._clock_s() >= deadline_s:
                    self.kill()
                    break
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_LOOK_S)
        self._process = None
        for name in (_PUBLIC, _OPENING):
            (self._sockets / name).unlink(missing_ok=True)
        if self._sockets != self._folder:
            with contextlib.suppress(OSError):
                self._sockets.rmdir()
        self._starter.shutdown()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def url(self) -> str:
        """For `RedisStore`; known after the first start, and the same after a restart."""
        return "unix://" + quote(str(self._sockets / _PUBLIC))

    @property
    def pid(self) -> int | None:
        """The server's process; None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def lock(self) -> int:
        """The descriptor that holds the directory; who inherits it holds it too."""
        if self._lock is None:
            raise RuntimeError("the store was not started")
        return self._lock

    @property
    def log_file(self) -> Path:
        return self._folder / "redis.log"

    # --- the directory

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            probe = self._folder / f".probe-{os.getpid()}"
            probe.write_bytes(b"x")
            probe.unlink()
        except OSError as error:
            raise PrivateStoreError(
                f"The state directory {self._folder} cannot be written ({error.strerror}): "
                "free or unlock it, or choose another with --state-dir."
            ) from error
        self._sockets = _socket_folder(self._folder)

    def _take_lock(self) -> None:
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline_s = self._clock_s() + _LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
                # a killed run's server and workers hold on for a moment
                if _alive(holder) or self._clock_s() >= deadline_s:
                    os.close(lock)
                    raise PrivateStoreError(
                        f"Process {holder or '(unknown)'} runs a topology in {self._folder.parent} already: "
                        "stop it, or choose another directory with --state-dir."
                    ) from None
                time.sleep(_POLL_S)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    # --- the server

    def _launch(self) -> int:
        for name in (_PUBLIC, _OPENING):
            (self._sockets / name).unlink(missing_ok=True)
        process = self._process = self._starter.submit(self._spawn).result()
        url = "unix://" + quote(str(self._sockets / _OPENING))
        store = RedisStore(url, "run")
        try:
            self._await_loaded(process, url)
            self.generation = store.call(OpenStore(self._store_id))
        except (ProtocolMismatch, StoreFull, StoreUnreachable) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise self._explain(process.wait(_END_S)) from error
            raise PrivateStoreError(f"The private redis-server cannot be used: {error}.") from error
        finally:
            store.close()
        (self._sockets / _OPENING).rename(self._sockets / _PUBLIC)
        return self.generation

    def _await_loaded(self, process: subprocess.Popen[bytes], url: str) -> None:
        """Wait until the server takes calls, however long what it loads takes, and load the functions."""
        stopped_since_s: float | None = None
        while True:
            code = process.poll()
            if code is not None:
                raise self._explain(code)
            if self._ending.is_set() or self._is_told():
                raise PrivateStoreError("Told to stop before the private redis-server had started.")
            seen = look_at(process.pid)
            if seen is None or seen.state != STOPPED:
                stopped_since_s = None
            elif stopped_since_s is None:
                stopped_since_s = self._clock_s()
            elif self._clock_s() - stopped_since_s >= _STOPPED_S:
                process.kill()
            if stopped_since_s is None and answers_at(url):
                try:
                    load_functions(url)
                except StoreUnreachable:
                    pass
                else:
                    return
            time.sleep(_POLL_S)

    def _spawn(self) -> subprocess.Popen[bytes]:
        """Start the server as a child that ends with this process and hears no Ctrl-C."""
        fresh = not self.log_file.exists() or self.log_file.stat().st_size > _LOG_BYTES_MAX
        with self.log_file.open("wb" if fresh else "ab") as log:
            self._log_start = log.tell()
            return subprocess.Popen(
                [self._server, *self._arguments()],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(self.lock,),
                preexec_fn=ends_with_starter(),  # noqa: PLW1509 - it takes no lock
            )

    def _arguments(self) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self._sockets / _OPENING),
            "unixsocketperm": "700",
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "auto-aof-rewrite-percentage": "100",
            "auto-aof-rewrite-min-size": "256mb",
            "aof-load-truncated": "yes",
            "save": "",
            "maxmemory": str(self._memory_bytes),
            "maxmemory-policy": "noeviction",
            "databases": "1",
        }
        return [part for name, value in settings.items() for part in (f"--{name}", value)]

    def _explain(self, code: int) -> PrivateStoreError:
        """Why the server ended, from its log."""
        with self.log_file.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - _LOG_TAIL_BYTES))
            lines = log.read().decode("utf-8", errors="replace").splitlines()
        text = "\n".join(lines)
        # On a disk without room the log itself may be cut short.
        if "No space left on device" in text or shutil.disk_usage(self._folder).free < _ROOM_BYTES_MIN:
            return PrivateStoreError(
                f"The disk of {self._folder} is full: free some space, or choose another directory "
                "with --state-dir.",
                disk_full=True,
            )
        if re.search(
            r"Bad file format reading|Unexpected end of file reading|the truncated file is not", text
        ):
            return PrivateStoreError(
                f"The store's append-only file in {self._folder} is damaged: repair it "
                "(redis-check-aof --fix), or begin anew with --fresh."
            )
        last = next((line for line in reversed(lines) if line.strip()), "nothing")
        last = re.sub(r"^\d+:\w .*?\d\d:\d\d:\d\d\.\d+ . ", "", last)
        return PrivateStoreError(
            f"The private redis-server ended at its start with code {code} (its log says: {last}): "
            f"see {self.log_file}.",
            killed=code < 0,
        )


def find_server() -> str:
    """The path of a redis-server or valkey-server on PATH that is new enough. Raises PrivateStoreError."""
    for name in _SERVERS:
        server = shutil.which(name)
        if server is not None:
            break
    else:
        raise PrivateStoreError(f"Penstock keeps its state in Redis and found no redis-server: {_INSTALL}.")
    ran = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=20, check=False)
    kind = "valkey" if "valkey" in ran.stdout.lower() else "redis"
    found = re.search(r"v=(\d+)\.(\d+)[.\d]*", ran.stdout)
    if found is None:
        raise PrivateStoreError(f"{server} does not tell its version: {_INSTALL}.")
    if (int(found[1]), int(found[2])) < _VERSIONS_MIN[kind]:
        raise PrivateStoreError(
            f"{server} is {kind} {found[0][2:]}, which has no functions as needed: {_INSTALL}."
        )
    return server


def url_of(state_dir: Path) -> str:
    """For `RedisStore`, where a store of this state directory is up."""
    return "unix://" + quote(str(_socket_folder(state_dir.absolute() / "store") / _PUBLIC))


def answers_at(url: str) -> bool:
    """Whether a server is there, with whatever answer."""
    wire = Wire(url, _ANSWER_S)
    try:
        wire.exchange([(b"PING",)])
    except StoreUnreachable:
        return False
    finally:
        wire.close()
    return True


def _socket_folder(folder: Path) -> Path:
    """Where the sockets are: in `folder`, unless their paths are too long for the kernel; then in a folder
    of the user's own below the system's temporary one, the same at each start."""
    longest = max(_OPENING, _PUBLIC, key=len)
    if len(os.fsencode(folder / longest)) <= _SOCKET_PATH_BYTES_MAX:
        return folder
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    short = Path(tempfile.gettempdir(), f"penstock-{os.getuid()}-{name}")
    short.mkdir(mode=0o700, exist_ok=True)
    seen = short.lstat()
    if seen.st_uid != os.getuid() or not stat.S_ISDIR(seen.st_mode) or stat.S_IMODE(seen.st_mode) & 0o077:
        raise PrivateStoreError(
            f"{short} is not a directory of this user alone: remove it, or choose a shorter --state-dir."
        )
    return short


def _alive(pid: str) -> bool:
    return pid.isdigit() and Path(f"/proc/{pid}").exists()


def _quarter_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
