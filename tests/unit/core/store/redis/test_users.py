"""The file that lists a store's users."""

from __future__ import annotations

import re

import pytest

from penstock.errors import PermanentError
from penstock.store.redis.library import function_library, previous_library
from penstock.store.redis.users import (
    USERS,
    hash_of,
    hashes_of,
    read_users,
    topology_rules,
    topology_user,
    users_file,
)

OLD = {user: f"old secret of the {user}" for user in USERS}
NEW = {user: f"new secret of the {user}" for user in USERS}


def test_a_user_may_have_several_passwords_of_which_the_file_holds_hashes_alone() -> None:
    text = users_file({user: [hash_of(OLD[user]), hash_of(NEW[user]), hash_of(OLD[user])] for user in USERS})
    for user in USERS:
        assert hashes_of(text)[user] == (hash_of(OLD[user]), hash_of(NEW[user]))
        assert not any(one[user] in text for one in (OLD, NEW))
    assert set(read_users(text)) == {"default", *USERS}
    assert "off" in read_users(text)["default"]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", "operator, agent"),
        ("/etc/penstock/users/users.acl: No such file", "operator, agent"),
        (users_file({user: [hash_of(user)] for user in USERS}).replace("agent on", "agent off"), "agent"),
        (users_file({"worker": [], "operator": [hash_of("o")], "agent": [hash_of("a")]}), "worker"),
    ],
)  # fmt: skip
def test_a_file_that_would_keep_somebody_out_is_not_taken(text: str, missing: str) -> None:
    with pytest.raises(PermanentError, match=f"none that is on for {missing}$"):
        read_users(text)


def test_the_user_that_topologies_shared_is_left_out_where_it_has_no_password() -> None:
    text = users_file({user: [hash_of(OLD[user])] for user in USERS if user != "worker"})
    assert set(read_users(text)) == {"default", "operator", "agent"}


def test_the_user_of_a_topology_has_the_keys_and_channels_of_its_own_prefix() -> None:
    rules = topology_rules("0ae1-b", [hash_of("one"), hash_of("two"), hash_of("one")])
    patterns = [rule for rule in rules if rule[0] in "~%&("]
    assert patterns == [
        "~penstock:0ae1-b:*",
        "%R~penstock:store",
        "&penstock:0ae1-b:*",
        "(%W~penstock:topologies +sadd)",
    ]
    assert [rule for rule in rules if rule[0] == "#"] == [f"#{hash_of(one)}" for one in ("one", "two")]
    assert topology_user("0ae1-b") == "worker-0ae1-b"


@pytest.mark.parametrize("uid", ["", "*", "a:b", "a b", "[a-z]", "a?", "a/../b", "a" * 65])
def test_what_is_no_uid_gets_no_user(uid: str) -> None:
    with pytest.raises(ValueError, match="topology uid"):
        topology_rules(uid, [hash_of("one")])


def test_the_user_of_a_topology_has_the_commands_of_both_libraries_and_few_others() -> None:
    """A command that is new in a function is given to it here."""
    given = {rule[1:] for rule in topology_rules("uid", [hash_of("one")]) if rule[0] == "+"}
    called = set[str]()
    for library in (function_library(), previous_library()):
        text = library.decode()
        called |= {one.lower() for one in re.findall(r"redis\.p?call\(\s*(?:\w+ and )?'(\w+)'", text)}
        called |= {one.lower() for one in re.findall(r"call_chunked\('(\w+)'", text)}
    of_agents = {"info", "memory", "scan", "dbsize", "rename"}
    assert called - given == of_agents
    asked_beside = {
        "fcall", "fcall_ro", "hello", "ping", "subscribe", "llen", "xread", "hrandfield",
    }  # fmt: skip
    assert given - called == asked_beside
