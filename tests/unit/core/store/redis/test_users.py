"""The file that lists a store's users."""

from __future__ import annotations

import pytest

from penstock.errors import PermanentError
from penstock.store.redis.users import USERS, hash_of, hashes_of, read_users, users_file

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
        ("", "worker, operator, agent"),
        ("/etc/penstock/users/users.acl: No such file", "worker, operator, agent"),
        (users_file({user: [hash_of(user)] for user in USERS}).replace("agent on", "agent off"), "agent"),
        (users_file({"worker": [], "operator": [hash_of("o")], "agent": [hash_of("a")]}), "worker"),
    ],
)  # fmt: skip
def test_a_file_that_would_keep_somebody_out_is_not_taken(text: str, missing: str) -> None:
    with pytest.raises(PermanentError, match=f"none that is on for {missing}$"):
        read_users(text)
