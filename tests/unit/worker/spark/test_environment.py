"""A worker whose platform gave it a uid that the image's /etc/passwd does not know."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from penstock_worker.spark.environment import nameless_user_options, prepare

UID = 1_000_710_000
"""From a range as OpenShift gives them to namespaces."""


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As such a user, with a home that nobody may write; its scratch folder."""
    with pytest.raises(KeyError):
        pwd.getpwuid(UID)
    monkeypatch.setattr(os, "getuid", lambda: UID)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("SPARK_USER", "HADOOP_USER_NAME", "TMPDIR", "SPARK_LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nowhere")
    return tmp_path


def test_a_user_without_a_name_gets_one_and_a_home_that_it_may_write(nameless: Path) -> None:
    environment = prepare()
    for name in ("HOME", "TMPDIR", "SPARK_LOCAL_DIRS"):
        assert environment[name] == str(nameless)
    assert environment["SPARK_USER"] == environment["HADOOP_USER_NAME"] == "penstock"
    assert nameless_user_options() == ("-Duser.name=penstock", f"-Duser.home={nameless}")


def test_a_user_with_a_name_keeps_it(nameless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: pwd.getpwall()[0].pw_uid)
    assert nameless_user_options() == ()
