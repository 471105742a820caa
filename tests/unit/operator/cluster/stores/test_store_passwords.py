"""How the passwords of the stores come to be, and how one takes another's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from penstock.store.redis.users import USERS, hash_of, hashes_of
from penstock_operator.cluster.stores.store_passwords import (
    Passwords,
    PasswordsDecision,
    StorePasswords,
    decide_passwords,
    first_passwords,
)

FORMER_S = 300.0
GIVEN = {user: f"given to the {user}" for user in USERS}
OTHERS = {user: f"later given to the {user}" for user in USERS}


def generator() -> Callable[[], str]:
    numbers = count()
    return lambda: f"made {next(numbers)}"


def fresh(given: Passwords | None = None) -> StorePasswords:
    return first_passwords(given, {}, "", generator())


def decided(
    held: StorePasswords,
    given: Passwords | None = None,
    refusing: list[str] | None = None,
    now_s: float = 0.0,
) -> PasswordsDecision:
    return decide_passwords(held, given, refusing, now_s, FORMER_S, lambda: "new " + generator()())


def takes(held: StorePasswords, passwords: Passwords) -> bool:
    """Whether a store that knows the users' file lets all of them in."""
    known = {"worker": held.roots, **hashes_of(held.users)}
    return all(hash_of(passwords[user]) in known[user] for user in USERS)


def test_passwords_are_made_once_each_another_one() -> None:
    held = fresh()
    assert len({*held.current.values(), held.spark_key, held.workers_key}) == len(USERS) + 2
    assert takes(held, held.current)
    assert decided(held) == PasswordsDecision(held), "nothing changes them by itself"


def test_passwords_that_are_there_already_are_kept_and_so_is_the_key_of_running_spark_masters() -> None:
    before = {user: f"of the chart for the {user}" for user in USERS}
    held = first_passwords(None, before, "", generator())
    assert held.current == before
    assert held.spark_key == before["worker"]


def test_somebody_elses_passwords_are_taken_from_the_first() -> None:
    held = fresh(GIVEN)
    assert held.current == GIVEN
    assert decided(held, GIVEN) == PasswordsDecision(held)


def test_new_passwords_go_to_the_stores_then_to_pods_and_then_the_former_ones_are_over() -> None:
    held = fresh(GIVEN)
    told = decided(held, OTHERS)
    coming = told.passwords
    assert told.event is not None
    assert told.event.reason == "PasswordsRotating"
    assert coming.current == GIVEN, "no pod has them yet"
    assert takes(coming, GIVEN)
    assert takes(coming, OTHERS)

    waiting = decided(coming, OTHERS, ["store-a"])
    assert waiting == PasswordsDecision(coming), "one store does not take them yet"
    assert decided(coming, OTHERS, None) == PasswordsDecision(coming), "nobody was asked"

    told = decided(coming, OTHERS, [], now_s=10.0)
    given = told.passwords
    assert told.event is not None
    assert told.event.reason == "PasswordsGiven"
    assert (given.current, given.coming, given.former_until_s) == (OTHERS, None, 10.0 + FORMER_S)
    assert takes(given, GIVEN), "whose kubelet is slow still comes in"

    assert decided(given, OTHERS, now_s=309.0) == PasswordsDecision(given)
    told = decided(given, OTHERS, now_s=310.0)
    over = told.passwords
    assert told.event is not None
    assert told.event.reason == "PasswordsRotated"
    assert over == replace(fresh(OTHERS), spark_key=held.spark_key, workers_key=held.workers_key)
    assert not takes(over, GIVEN)


def test_made_passwords_are_rotated_when_somebody_asks_and_once_for_each_question() -> None:
    held = replace(fresh(), asked="monday")
    coming = decided(held).passwords
    assert coming.coming is not None
    assert coming.coming != held.current
    over = decided(decided(coming, refusing=[]).passwords, now_s=FORMER_S).passwords
    assert over.answered == "monday"
    assert decided(over, now_s=9e9) == PasswordsDecision(over)


def test_what_changes_in_the_middle_of_a_rotation_is_the_next_one() -> None:
    coming = decided(fresh(GIVEN), OTHERS).passwords
    again = {user: f"last given to the {user}" for user in USERS}
    given = decided(coming, again, []).passwords
    assert given.current == OTHERS
    assert decided(given, again, now_s=1.0).passwords == given
    over = decided(given, again, now_s=FORMER_S).passwords
    assert decided(over, again).passwords.coming == again


def test_a_question_about_somebody_elses_passwords_changes_nothing() -> None:
    held = replace(fresh(GIVEN), asked="now")
    assert decided(held, GIVEN).passwords == replace(held, answered="now")


def test_passwords_that_somebody_wrote_into_the_operators_own_secret_keep_nobody_out() -> None:
    held = fresh(GIVEN)
    edited = replace(held, current={**GIVEN, "worker": "by hand"})
    mended = decided(edited).passwords
    assert takes(mended, edited.current)
    assert takes(mended, GIVEN)
    assert mended.former_until_s == FORMER_S
    over = decided(mended, now_s=FORMER_S).passwords
    assert takes(over, edited.current)
    assert not takes(over, GIVEN)


def test_another_versions_rights_reach_the_stores_with_the_same_passwords() -> None:
    held = fresh(GIVEN)
    older = replace(held, users=held.users.replace("+@hash", "+@hash +client"))
    assert decided(older, GIVEN) == PasswordsDecision(held)
