"""The passwords of the node stores' users, and how one is replaced while everybody works on.

What pods mount is one Secret, which the operator makes and writes. New passwords come from a Secret that
somebody else writes, or are made when that is asked for. They take the place of the present ones in three
steps, each of which may be the last one of a process:

  coming   the stores are told to take the new passwords too; nobody has them yet
  given    once all stores take them, pods are given them; the former ones are good still, since a pod sees
           another Secret up to two minutes later, and a store that starts meanwhile may read an older file
  over     the stores are told to take the former ones no more, and end connections that may have used them

Pure. Neighbours: `turns.passwords_turn` reads and writes the Secret and asks the stores; `redis.users` has
the users' file; the agent beside each store carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.store.redis.users import USERS, hash_of, hashes_of, users_file
from penstock_operator.cluster.decisions.actions import Event

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
    given: Passwords | None, held: Passwords, spark_key: str, generate: Callable[[], str]
) -> StorePasswords:
    """For a Secret that is not there, or lacks some of its keys: what it has of them stays. A key of remote
    tasks that is not there yet is what it was before there was one."""
    passwords = {user: held.get(user) or (given or {}).get(user) or generate() for user in USERS}
    key = spark_key or held.get("worker") or generate()
    return StorePasswords(passwords, _taking(passwords), key)


def decide_passwords(
    held: StorePasswords,
    given: Passwords | None,
    refusing: Sequence[str] | None,
    now_s: float,
    former_valid_s: float,
    generate: Callable[[], str],
) -> PasswordsDecision:
    """The next step. `given` are the passwords that somebody else's Secret says, None without one; `refusing`
    are the stores that do not take those that are coming, None where they were not asked."""
    if held.coming is not None:
        return _hand_out(held, held.coming, refusing, now_s, former_valid_s)
    if held.former_until_s is not None:
        if now_s < held.former_until_s:
            return PasswordsDecision(held)
        told = Event("Normal", "PasswordsRotated", "the stores are told to take the former passwords no more")
        return PasswordsDecision(
            replace(held, users=_taking(held.current), former_until_s=None),
            told,
        )
    coming = _wanted(held, given, generate)
    if coming == held.current:
        return PasswordsDecision(_as_it_stands(held, now_s, former_valid_s))
    told = Event("Normal", "PasswordsRotating", "the stores are told to take new passwords, too")
    return PasswordsDecision(
        replace(held, users=_taking(held.current, coming), coming=coming, answered=held.asked), told
    )


def _as_it_stands(held: StorePasswords, now_s: float, former_valid_s: float) -> StorePasswords:
    """Nothing is to be replaced. Where somebody has written other passwords into this Secret itself, pods get
    them as they come; what was good before is good for as long as it takes."""
    known = hashes_of(held.users)
    answered = replace(held, answered=held.asked)
    if all(hash_of(held.current[user]) in known.get(user, ()) for user in USERS):
        return replace(answered, users=_taking(held.current))
    both = {user: (hash_of(held.current[user]), *known.get(user, ())) for user in USERS}
    return replace(answered, users=users_file(both), former_until_s=now_s + former_valid_s)


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
) -> PasswordsDecision:
    both = replace(held, users=_taking(held.current, coming))
    if both != held or refusing is None or refusing:
        return PasswordsDecision(both)
    given = replace(held, current=coming, coming=None, former_until_s=now_s + former_valid_s)
    told = Event(
        "Normal",
        "PasswordsGiven",
        f"all stores take the new passwords; pods get them; former ones are good for {former_valid_s:g} s",
    )
    return PasswordsDecision(given, told)


def _taking(*passwords: Passwords) -> str:
    """The users' file with which each of these is good."""
    return users_file({user: [hash_of(one[user]) for one in passwords] for user in USERS})
