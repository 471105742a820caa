"""The users of a node store: what each may do, and the file that lists them with hashes of their passwords.

A user may have several passwords: while one is rotated, the former one is still good. The operator writes the
file (`users_file`), a server reads it at its start, and the agent beside it brings the running server to what
the file says since (`read_users`). User by user:

  default   nobody: it is off, and has no password. Its rights are for the server itself, which replays its
            log as this user, and silently leaves out each transaction that the user has no right to
  worker    the user that workers of all topologies shared in earlier versions: the functions of tasks, with
            what those do with the data types of topologies' keys. Left out where nobody needs it any more
  operator  reads; and writes who the topologies' users are
  agent     everything: it loads the functions, writes the maps, moves shards

The workers of each topology have a user of their own, which no file lists: the agent makes it of what the
operator has written into the store (`worker_users`). It does what tasks do, and no more, with the keys and
channels below its topology's prefix; of what is common it reads the store's id and generation, and may add to
the set of topologies. A server checks the calls of a function against who calls it, so no argument leads
further.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from penstock.errors import PermanentError
from penstock.store.keys import STORE, TOPOLOGIES, WORKER_USERS, Keys

SHARED = "worker"
USERS = (SHARED, "operator", "agent")
"""Who has a password of its own, in the order in which a server gets to know them."""
PROBE = "probe"
"""Stands for a topology's uid: every agent that makes users of topologies makes this one's too, and whoever
logs in as it knows that the others are there."""

_OF_TASKS = (
    "-@all +@hash +@list +@set +@sortedset +@stream +fcall +fcall_ro +exists +expire +persist +unlink"
    " +publish +subscribe +hello +ping -@admin -@dangerous"
)
_OF_A_TOPOLOGY = (
    "-@all +fcall +fcall_ro +exists +expire +persist +unlink +publish +subscribe +hello +ping"
    " +hdel +hexists +hget +hgetall +hincrby +hkeys +hlen +hmget +hrandfield +hscan +hset +hsetnx +hstrlen"
    " +lindex +llen +lpop +lpush +lrem +rpush"
    " +sadd +scard +smembers +smismember +spop +srandmember +srem +sscan"
    " +xadd +xlen +xrange +xread +xrevrange +xtrim"
    " +zadd +zcard +zrange +zrangebyscore +zrem +zremrangebyscore +zrevrange +zscan +zscore"
)
"""What the functions of both libraries do with topologies' keys, and what is asked beside them. Each takes as
long as what it touches is large; a union of one set with itself, ten thousand times, keeps a server for
minutes."""
_RULES = {
    SHARED: f"resetkeys ~penstock:* resetchannels &penstock:* {_OF_TASKS}",
    "operator": (
        "resetkeys %R~penstock:* resetchannels -@all +@read +fcall_ro +hello +ping -scan -randomkey"
        f" -@admin -@dangerous (~{WORKER_USERS.decode()} +hmget +hset)"
    ),
    "agent": "~* &* +@all",
}
_DEFAULT = "user default off resetpass ~* &* +@all"
_HASH = re.compile(r"#([0-9a-f]{64})")


def hash_of(password: str) -> str:
    """As a server knows a password."""
    return hashlib.sha256(password.encode()).hexdigest()


def topology_user(topology_uid: str) -> str:
    """The user of a topology's workers."""
    return f"{SHARED}-{topology_uid}"


def topology_rules(topology_uid: str, hashes: Iterable[str]) -> tuple[str, ...]:
    """What that user may do, and that it may log in by the passwords that `hashes` are of. ValueError for
    what is no uid: a pattern must not match what is others'."""
    prefix = Keys(topology_uid).prefix.decode()
    known = (f"#{one}" for one in dict.fromkeys(hashes))
    own = f"resetkeys ~{prefix}* %R~{STORE.decode()} resetchannels &{prefix}* {_OF_A_TOPOLOGY}"
    return ("on", *known, *own.split(), f"(%W~{TOPOLOGIES.decode()} +sadd)")


def users_file(hashes: Mapping[str, Iterable[str]]) -> str:
    """The file, where each user of `USERS` may log in by the passwords that `hashes` are of. Without any of
    the shared user there is none."""
    lines = [_DEFAULT]
    for user in USERS:
        if user == SHARED and user not in hashes:
            continue
        known = " ".join(f"#{one}" for one in dict.fromkeys(hashes[user]))
        lines.append(f"user {user} on {known} {_RULES[user]}")
    return "\n".join(lines) + "\n"


def read_users(text: str) -> dict[str, tuple[str, ...]]:
    """User -> rules, as they stand in a file. Raises PermanentError when one that Penstock needs is missing,
    as in a file that is none: a server that took it would let nobody in."""
    found = _rules_in(text)
    needed = [user for user in USERS if user != SHARED or user in found]
    missing = [user for user in needed if "on" not in found.get(user, ()) or not _hashes(found[user])]
    if missing:
        raise PermanentError(f"the file with the store's users has none that is on for {', '.join(missing)}")
    return found


def hashes_of(text: str) -> dict[str, tuple[str, ...]]:
    """User -> hashes of the passwords that a file gives it; nothing of users that it does not name."""
    return {user: _hashes(rules) for user, rules in _rules_in(text).items()}


def _rules_in(text: str) -> dict[str, tuple[str, ...]]:
    lines = [line.split() for line in text.splitlines()]
    return {words[1]: tuple(words[2:]) for words in lines if len(words) > 2 and words[0] == "user"}


def _hashes(rules: Iterable[str]) -> tuple[str, ...]:
    return tuple(found[1] for rule in rules if (found := _HASH.fullmatch(rule)))
