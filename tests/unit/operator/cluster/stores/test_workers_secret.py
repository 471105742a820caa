"""The Secret that workers' pods mount: their own topology's keys of it."""

from __future__ import annotations

from itertools import count

from penstock_operator.cluster.manifests.worker_login import worker_login
from penstock_operator.cluster.stores.password_secret import texts_of
from penstock_operator.cluster.stores.store_passwords import first_passwords
from penstock_operator.cluster.stores.workers_secret import (
    replaces_any,
    with_texts,
    workers_secret,
    workers_texts,
)
from worlds.cluster_world import CONFIG

NUMBERS = count()
PASSWORDS = first_passwords(None, {}, "", lambda: f"made {next(NUMBERS)}")


def test_what_a_pod_mounts_is_there_and_in_the_namespace_of_the_pod() -> None:
    made = with_texts(
        workers_secret(CONFIG, "elsewhere"), workers_texts(PASSWORDS, ["u1", "u2"], CONFIG), alone=True
    )
    assert made["metadata"]["namespace"] == "elsewhere"
    for uid in ("u1", "u2"):
        login = worker_login(CONFIG, uid, own_user=True)
        assert login.secret == made["metadata"]["name"]
        assert {login.password, login.spark} <= set(texts_of(made))
    assert len(set(texts_of(made).values())) == 4


def test_what_else_is_in_it_goes_where_all_are_known_and_stays_where_not() -> None:
    held = with_texts(workers_secret(CONFIG, "streams"), {"gone": "g", "u1": "former"}, alone=True)
    texts = workers_texts(PASSWORDS, ["u1"], CONFIG)
    assert set(texts_of(with_texts(held, texts, alone=True))) == {"u1", "u1.spark-key"}
    assert set(texts_of(with_texts(held, texts, alone=False))) == {"gone", "u1", "u1.spark-key"}
    assert replaces_any(held, texts)
    assert not replaces_any(held, workers_texts(PASSWORDS, ["u2"], CONFIG))
