"""The function library as it is joined: every part once, in one order, and each line is found again."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

import pytest

from penstock.store.keys import Keys
from penstock.store.port import Bounds
from penstock.store.redis.calls import RedisCalls
from penstock.store.redis.library import (
    PREVIOUS_VERSION,
    PROTOCOL_VERSION,
    ROLES,
    SHARED,
    function_library,
    libraries,
    library_name,
    part_and_line,
    previous_library,
    refusal,
    version_of,
    with_parts,
)

FOLDER = files("penstock.store.redis") / "functions"
LOCALS_MAX = 200
"""Of one function, by Lua's own limit; the library's text is one."""


def stems(folder: Traversable) -> list[str]:
    return sorted(one.name.removesuffix(".lua") for one in folder.iterdir() if one.name.endswith(".lua"))


def test_the_package_holds_every_part_and_no_other() -> None:
    assert stems(FOLDER) == sorted([*ROLES, "previous"])
    assert stems(FOLDER / "shared") == sorted(SHARED)


def test_the_joined_text_is_always_the_same_and_names_library_and_version() -> None:
    text = function_library()
    assert text == function_library()
    assert text.startswith(b"#!lua name=penstock_%d\n" % PROTOCOL_VERSION)
    assert text.count(b"local VERSION = %d\n" % PROTOCOL_VERSION) == 1


def test_each_part_begins_with_what_it_is_for() -> None:
    parts = [
        *(FOLDER / "shared" / f"{name}.lua" for name in SHARED),
        *(FOLDER / f"{name}.lua" for name in ROLES),
    ]
    for part in parts:
        text = part.read_text().removeprefix(f"#!lua name=penstock_{PROTOCOL_VERSION}\n\n")
        assert re.match(r"-- \w[^\n]{15,}\n", text), part
        assert text.endswith("\n")


def test_the_names_of_the_shared_parts_leave_room_for_more() -> None:
    names: list[str] = []
    for part in SHARED:
        text = (FOLDER / "shared" / f"{part}.lua").read_text()
        names += re.findall(r"^local function (\w+)", text, re.MULTILINE)
        for found in re.findall(r"^local (?!function)([\w, ]+)", text, re.MULTILINE):
            names += re.findall(r"\w+", found)
    assert len(names) == len(set(names))
    assert len(names) < LOCALS_MAX - 30


def test_every_function_is_registered_once_and_called_by_its_name() -> None:
    registered = re.findall(r"^register\('(\w+)'", function_library().decode(), re.MULTILINE)
    assert len(registered) == len(set(registered))
    called = RedisCalls(Keys("t1"), Bounds()).functions
    assert sorted(registered) == sorted({*called, "open_store", "keep_topologies"})


def test_a_line_of_the_library_is_told_as_the_line_of_its_part() -> None:
    lines = function_library().decode().split("\n")
    for name, own in (
        ("shared/library.lua", "local VERSION"),
        ("shared/queues.lua", "local function drain"),
        ("administration.lua", "local function open_store"),
        ("commits.lua", "local function commit_one"),
        ("moves_install.lua", "register('install'"),
    ):
        at = next(at for at, line in enumerate(lines) if line.startswith(own))
        part, line = part_and_line(at + 1).split(":")
        assert part == name
        assert (FOLDER / part).read_text().split("\n")[int(line) - 1].startswith(own)


def test_a_servers_error_is_told_with_the_part_that_it_comes_from() -> None:
    lines = function_library().decode().split("\n")
    at = next(at for at, line in enumerate(lines) if line.startswith("local function commit_one")) + 1
    told = with_parts(f"ERR user_function:{at}: attempt to index a nil value, on @user_function:{at}.")
    assert re.fullmatch(r"ERR (commits\.lua:\d+): attempt to index a nil value, on @\1\.", told)


def test_a_line_that_the_library_does_not_have_stays_as_it_was() -> None:
    assert with_parts("ERR user_function:999999: oh") == "ERR user_function:999999: oh"


def test_a_servers_error_in_the_library_of_the_version_before_is_told_with_its_own_file() -> None:
    told = with_parts(
        f"ERR user_function:7: oh script: penstock_claim_{PREVIOUS_VERSION}, on @user_function:7."
    )
    assert told == f"ERR previous.lua:7: oh script: penstock_claim_{PREVIOUS_VERSION}, on @previous.lua:7."


def test_a_store_holds_this_version_and_the_one_before_and_knows_them_by_name() -> None:
    held = libraries(PROTOCOL_VERSION, function_library(), previous_library())
    assert list(held) == [library_name(PREVIOUS_VERSION), library_name(PROTOCOL_VERSION)]
    for name, source in held.items():
        assert source.startswith(b"#!lua name=%s\n" % name)
    assert [version_of(*one) for one in held.items()] == [PREVIOUS_VERSION, PROTOCOL_VERSION]
    assert version_of(b"penstock_of_somebody", b"local VERSION = 9\n") is None


def test_once_no_library_without_a_number_is_left_its_name_tells_older_code_to_give_way() -> None:
    held = libraries(12, b"twelve", b"eleven")
    assert list(held) == [b"penstock", b"penstock_11", b"penstock_12"]
    assert b"return 11 end" in held[b"penstock"]
    assert version_of(b"penstock", held[b"penstock"]) is None


@pytest.mark.parametrize(
    ("held", "has_topologies", "words"),
    [
        ([], True, ""),
        ([9], True, ""),
        ([9, 10], True, ""),
        ([10, 11], True, ""),
        ([9, 10, 11], True, ""),
        ([11, 12], False, "12 has worked with this store, and that is newer than 10 by more than one"),
        ([5], False, ""),
        ([5], True, "version 5, and this one reads 9 and 10: upgrade one version at a time"),
    ],
)
def test_a_store_is_taken_over_from_one_version_away(
    held: list[int], has_topologies: bool, words: str
) -> None:
    told = refusal(10, held, has_topologies=has_topologies)
    assert words in told
    assert bool(words) == bool(told)
