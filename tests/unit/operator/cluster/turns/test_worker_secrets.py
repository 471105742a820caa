"""The workers' part of the stores' passwords, in further namespaces: what goes wrong in one is its own."""

from __future__ import annotations

import base64

from clocks.running import run
from penstock.api.operator_config import OperatorConfig
from penstock_operator.cluster.carrying_out.apply import Applier
from penstock_operator.cluster.carrying_out.operator_metrics import OperatorMetrics
from penstock_operator.cluster.kubernetes_api.mirror import WATCHED_ELSEWHERE, Mirror
from penstock_operator.cluster.kubernetes_api.port import SECRETS
from penstock_operator.cluster.observing.namespace_picture import NamespacePicture
from penstock_operator.cluster.stores.schedule_index import ScheduleIndex
from penstock_operator.cluster.stores.store_passwords import StorePasswords
from penstock_operator.cluster.turns.served_namespace import ServedNamespace
from penstock_operator.cluster.turns.worker_secrets import WorkerSecrets
from penstock_simulation.twins.memory_cluster import MemoryCluster
from worlds.operator_world import NAMESPACE, operator_config

TEAMS = ("team-a", "team-b")
CONFIG: OperatorConfig = operator_config(1, namespaces=TEAMS)
PASSWORDS = StorePasswords({"worker": "w", "operator": "o", "agent": "a"}, "users", "spark")


class Scene:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.cluster = MemoryCluster(clock_s=lambda: self.now_s, namespace=NAMESPACE)
        self.served = [self._serving(name) for name in CONFIG.served]
        self.secrets = WorkerSecrets(self.served, CONFIG, lambda: self.now_s)

    def _serving(self, name: str) -> ServedNamespace:
        within, mirror = self.cluster.within(name), Mirror(lambda *_: None, WATCHED_ELSEWHERE)
        applier = Applier(within, mirror, 1, OperatorMetrics())
        picture = NamespacePicture(within, mirror, mirror)
        return ServedNamespace(name, within, mirror, picture, applier, ScheduleIndex(mirror), is_open=True)

    def turn(self, passwords: StorePasswords | None = PASSWORDS) -> dict[str, set[str]]:
        """Namespace -> the texts of its Secret, of those that have one by then."""
        self.now_s += 20.0
        run(self.secrets.turn(passwords))
        held = {name: self.cluster.within(name).names(SECRETS) for name in CONFIG.served}
        return {
            name: {
                base64.b64decode(text).decode()
                for secret in secrets
                for text in self.cluster.within(name).held(SECRETS, secret)["data"].values()
            }
            for name, secrets in held.items()
            if secrets
        }


def test_nothing_is_written_before_passwords_are_known_and_never_beside_the_stores() -> None:
    scene = Scene()
    assert scene.turn(None) == {}
    assert scene.turn() == {"team-a": {"w", "spark"}, "team-b": {"w", "spark"}}


def test_one_namespace_that_takes_none_holds_up_no_other_and_is_tried_again() -> None:
    scene = Scene()
    scene.cluster.closed.add("team-a")
    assert scene.turn() == {"team-b": {"w", "spark"}}
    scene.cluster.closed.clear()
    assert set(scene.turn()) == {"team-a", "team-b"}


def test_a_namespace_that_is_not_open_is_left_alone() -> None:
    scene = Scene()
    scene.served[1].is_open = False
    assert set(scene.turn()) == {"team-b"}
