"""The passwords of the node stores' users, and how one is replaced while everybody works on.

What pods mount is one Secret, which the operator makes and writes. New passwords come from a Secret that
somebody else writes, or are made when that is asked for. They take the place of the present ones in three
steps, each of which may be the last one of a process:

  coming   the stores are told to take the new passwords too; nobody has them yet
  given    once all stores take them, pods are given them; the former ones are good still, since a pod sees
           another Secret up to two minutes later, and a store that starts meanwhile may read an older file
  over     the stores are told to take the former ones no more, and end connections that may have used them

Workers log in as their topology's own user, by a password that follows from a key and from the `worker`
password of here (`worker_passwords`), so these are replaced with it in the same steps. Where a store may not
know such users, as the agent of an earlier version does not, all share the user `worker`; once each store
knows them, pods are made with their own. What pods shared is then replaced, so that nobody has it: the user
itself stays, for an operator and pods of the version before. Where somebody else says the passwords the user
is left out until that one says another.

Pure. Neighbours: `turns.passwords_turn` reads and writes the Secret and asks the stores; `redis.users` has
the users' file; the agent beside each store carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.store.redis.users import PROBE, SHARED, USERS, hash_of, hashes_of, topology_user, users_file
from penstock_operator.cluster.decisions.actions import Event
from penstock_operator.cluster.stores.worker_passwords import worker_password

Passwords = Mapping[str, str]
"""User -> password."""


@dataclass(frozen=True, slots=True)
class StorePasswords:
    """The Secret. `coming` is there in a rotation whose passwords no pod has yet, `former_until_s` (of the
    wall clock) while former ones are good. `asked` is what was annotated to ask for new passwords, `answered`
    what of that has been taken up."""

    current: Passwords
    users: str
    spark_key: str
    workers_key: str = ""
    """What passwords of topologies' workers follow from, and nobody else has; "" in a Secret of an earlier
    version."""
    roots: tuple[str, ...] = ()
    """Hashes of the `worker` passwords of which what follows is good."""
    own_users: bool = False
    """Whether pods are made with their topology's own user."""
    was_shared: bool = False
    """Whether pods have had the present `worker` password."""
    coming: Passwords | None = None
    former_until_s: float | None = None
    asked: str = ""
    answered: str = ""


@dataclass(frozen=True, slots=True)
class PasswordsDecision:
    """What the Secret is to be, and what there is to tell of it."""

    passwords: StorePasswords
    event: Event | None = None


def first_passwords(
    given: Passwords | None,
    held: Passwords,
    spark_key: str,
    generate: Callable[[], str],
    *,
    workers_key: str = "",
    own_users: bool = True,
) -> StorePasswords:
    """For a Secret that is not there, or lacks some of its keys: what it has of them stays. A key of remote
    tasks that is not there yet is what it was before there was one. `own_users`: there is nobody who shares a
    user, or that is past."""
    passwords = {user: held.get(user) or (given or {}).get(user) or generate() for user in USERS}
    key = spark_key or held.get(SHARED) or generate()
    made = StorePasswords(
        passwords, "", key, workers_key or generate(), own_users=own_users, was_shared=not own_users
    )
    return _taking(made, passwords, is_shared=True)


def to_ask_for(held: StorePasswords) -> Passwords | None:
    """User -> password that each store must take before there is a next step; None where there is none to
    wait for."""
    if held.coming is not None:
        asked = {user: password for user, password in held.coming.items() if user != SHARED}
        if _has_shared(held):
            asked[SHARED] = held.coming[SHARED]
        if held.own_users:
            asked[topology_user(PROBE)] = worker_password(held.workers_key, held.coming[SHARED], PROBE)
        return asked
    if not held.own_users and held.workers_key:
        return probe_password(held)
    return None


def probe_password(held: StorePasswords) -> Passwords:
    """What a store takes that knows the users of topologies."""
    return {topology_user(PROBE): worker_password(held.workers_key, held.current[SHARED], PROBE)}


def decide_passwords(
    held: StorePasswords,
    given: Passwords | None,
    refusing: Sequence[str] | None,
    now_s: float,
    former_valid_s: float,
    generate: Callable[[], str],
    *,
    shared_is_used: bool = False,
) -> PasswordsDecision:
    """The next step. `given` are the passwords that somebody else's Secret says, None without one; `refusing`
    are the stores that do not take what is `to_ask_for`, None where they were not asked; `shared_is_used`:
    there are pods that have the shared user."""
    if not held.workers_key:
        roots = hashes_of(held.users).get(SHARED, ())
        return PasswordsDecision(replace(held, workers_key=generate(), roots=roots, was_shared=True))
    if shared_is_used and not held.was_shared:
        held = replace(held, was_shared=True)
    is_shared = shared_is_used or not held.own_users or not held.was_shared
    if held.coming is not None:
        return _hand_out(held, held.coming, refusing, now_s, former_valid_s, is_shared=is_shared)
    if held.former_until_s is not None:
        if now_s < held.former_until_s:
            return PasswordsDecision(held)
        told = Event("Normal", "PasswordsRotated", "the stores are told to take the former passwords no more")
        was_shared = shared_is_used or not held.own_users
        over = replace(held, former_until_s=None, was_shared=was_shared)
        return PasswordsDecision(_taking(over, held.current, is_shared=True), told)
    coming = _wanted(held, given, generate)
    if coming == held.current and held.own_users and held.was_shared and not shared_is_used and given is None:
        coming = {**held.current, SHARED: generate()}
    if coming != held.current:
        told = Event("Normal", "PasswordsRotating", "the stores are told to take new passwords, too")
        both = _taking(held, held.current, coming, is_shared=is_shared)
        return PasswordsDecision(replace(both, coming=coming, answered=held.asked), told)
    stands = _as_it_stands(held, now_s, former_valid_s, is_shared=is_shared)
    if not held.own_users and refusing is not None and not refusing:
        told = Event(
            "Normal",
            "OwnUsers",
            "all stores know a user for each topology: its workers are made anew, with that one",
        )
        return PasswordsDecision(replace(stands, own_users=True), told)
    return PasswordsDecision(stands)


def _has_shared(held: StorePasswords) -> bool:
    """Whether the users' file has the user that all share."""
    return SHARED in hashes_of(held.users)


def _as_it_stands(
    held: StorePasswords, now_s: float, former_valid_s: float, *, is_shared: bool
) -> StorePasswords:
    """Nothing is to be replaced. Where somebody has written other passwords into this Secret itself, pods get
    them as they come; what was good before is good for as long as it takes."""
    known = {**hashes_of(held.users), SHARED: held.roots}
    answered = replace(held, answered=held.asked)
    if all(hash_of(held.current[user]) in known.get(user, ()) for user in USERS):
        return _taking(answered, held.current, is_shared=is_shared)
    both = {user: (hash_of(held.current[user]), *known.get(user, ())) for user in USERS}
    return replace(
        _with_hashes(answered, both, is_shared=is_shared),
        former_until_s=now_s + former_valid_s,
    )


def _wanted(held: StorePasswords, given: Passwords | None, generate: Callable[[], str]) -> Passwords:
    if given is not None:
        return dict(given)
    if held.asked != held.answered:
        return {user: generate() for user in USERS}
    return held.current


def _hand_out(
    held: StorePasswords,
    coming: Passwords,
    refusing: Sequence[str] | None,
    now_s: float,
    former_valid_s: float,
    *,
    is_shared: bool,
) -> PasswordsDecision:
    both = _taking(held, held.current, coming, is_shared=is_shared)
    if both != held or refusing is None or refusing:
        return PasswordsDecision(both)
    given = replace(held, current=coming, coming=None, former_until_s=now_s + former_valid_s)
    told = Event(
        "Normal",
        "PasswordsGiven",
        f"all stores take the new passwords; pods get them; former ones are good for {former_valid_s:g} s",
    )
    return PasswordsDecision(given, told)


def _taking(held: StorePasswords, *passwords: Passwords, is_shared: bool) -> StorePasswords:
    """With a users' file, and roots, by which each of these is good."""
    hashes = {user: tuple(dict.fromkeys(hash_of(one[user]) for one in passwords)) for user in USERS}
    return _with_hashes(held, hashes, is_shared=is_shared)


def _with_hashes(
    held: StorePasswords, hashes: Mapping[str, tuple[str, ...]], *, is_shared: bool
) -> StorePasswords:
    listed = {user: known for user, known in hashes.items() if user != SHARED or is_shared}
    return replace(held, users=users_file(listed), roots=tuple(dict.fromkeys(hashes[SHARED])))
