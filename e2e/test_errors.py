"""Rows that code fails on in a cluster: seen, and worked on again once the code is mended, by a user with the
role `edit` and `penstock ... --cluster`. State is asked for too, while the topology runs and once it is
finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.harness.as_user import User
from e2e.harness.cluster import ROOT, Cluster
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import START_S, Running, WordCount, share
from e2e.harness.watching import wait_until

NAME = "letters"
POISON = "poisonous"
BEGINNING = f"nothing {POISON} here\n" * 3
"""Of each text."""
FAILING = f"""

from pathlib import Path

MENDED = Path("/app/mended/yes")


class Failing(Count):
    def handleInputRows(self, key: tuple[str], rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if key[0] == "{POISON}" and not MENDED.exists():
            raise ValueError("this word is poison")
        yield from super().handleInputRows(key, rows, timerValues)
"""


@pytest.fixture
def user(cluster: Cluster, tmp_path: Path) -> Iterator[User]:
    made = User.made(cluster, "editor", tmp_path)
    yield made
    made.remove()


@pytest.fixture
def code(cluster: Cluster) -> Iterator[str]:
    """The word count's code, and what fails in it, in a ConfigMap."""
    name = f"{NAME}-code"
    text = (ROOT / "examples/word-count/word_count.py").read_text(encoding="utf-8") + FAILING
    data = {"word_count.py": text}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
    yield name
    cluster.delete("configmap", name)


def failing_word_count(cluster: Cluster, shared: SharedFolder, code: str) -> WordCount:
    """It keeps apart what its code fails on, until there is a file `yes` in its folder's part `mended`."""
    counting = WordCount.made(cluster, shared, NAME, files=2, lines=400, lines_per_second=200)
    for path in (counting.folder / "texts").iterdir():
        path.write_text(BEGINNING + path.read_text(encoding="utf-8"), encoding="utf-8")
    (counting.folder / "mended").mkdir()
    mounts = [(part, f"/app/{part}") for part in ("texts", "out", "mended")]
    spec = share(counting.manifest, *mounts)["spec"]
    # The example's image has a module of the same name.
    del spec["image"]
    spec["code"] = {"configMap": code}
    lines, _, count, totals = spec["operators"]
    lines["source"]["files"]["glob"] = "/app/texts/**/*.txt"
    count |= {"processor": "word_count:Failing", "onError": {"policy": "DeadLetter"}}
    totals["sink"]["files"]["path"] = "/app/out/"
    return counting


def test_dead_letters_and_state_in_a_cluster_are_asked_for_and_replayed_by_a_user_who_may_edit(
    cluster: Cluster, shared: SharedFolder, run: Callable[[Running], None], user: User, code: str
) -> None:
    counting = failing_word_count(cluster, shared, code)
    run(counting)
    with counting.held_open():
        counting.wait_rows()
        counting.wait_phase("Running", START_S)
        wait_until(
            "there are dead letters",
            lambda: bool(user.objects("dead-letters", "list", NAME, "--json")),
            START_S,
            every_s=2,
        )
        letters = user.objects("dead-letters", "list", NAME, "--json")
        assert {(one["operator"], tuple(one["key"])) for one in letters} == {("count", (POISON,))}
        shown = user.told("dead-letters", "show", NAME, letters[0]["id"])
        assert "ValueError: this word is poison" in shown
        assert f'["{POISON}"]' in shown

        word = str(counting.rows()[0]["word"])
        kept = json.loads(user.told("state", "get", NAME, "count", word))
        assert 0 < kept["total"]["total"] <= counting.expected[word]
        assert user.penstock("state", "get", NAME, "count", POISON).returncode == 1
        assert f'["{word}"]' in user.told("state", "list", NAME, "count", "--most=100000").splitlines()
        assert "dead letters in count/" in user.told("logs", NAME, "count", "--last=1000")

        (counting.folder / "mended" / "yes").touch()
        told = user.told("dead-letters", "replay", NAME, "--all", "--timeout=60")
        assert told.endswith(" worked on again, 0 stay\n")
        assert user.told("dead-letters", "list", NAME) == ""
    counting.assert_exact()

    counting.wait_workers(0)
    asked = user.penstock("state", "get", NAME, "count", POISON)
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {"total": {"total": counting.expected[POISON]}}
    counting.wait_workers(0)
    assert counting.phase() == "Finished"
