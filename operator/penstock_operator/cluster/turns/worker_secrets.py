"""The workers' part of the stores' passwords, in each further namespace that is served: pods mount it.

A pod mounts Secrets of its own namespace only. The copy has the name of the stores' Secret, and of its keys
those alone that a worker is given; it follows that Secret, so a rotation reaches it when pods get the new
passwords. Neighbours: `passwords_turn` keeps the stores' Secret, `stores_turn` calls this after it,
`manifests.worker_pod` mounts.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Sequence

from penstock.api.operator_config import OperatorConfig
from penstock.errors import PermanentError, RetryError
from penstock_operator.cluster.kubernetes_api.names import COMPONENT_WORKER, component_labels
from penstock_operator.cluster.kubernetes_api.port import SECRETS, Object, Refusal
from penstock_operator.cluster.stores.password_secret import SPARK_KEY, password_key
from penstock_operator.cluster.stores.store_passwords import StorePasswords
from penstock_operator.cluster.turns.served_namespace import ServedNamespace

_LOG = logging.getLogger(__name__)

_LOOK_S = 5.0
_AGAIN_S = 15.0
"""After it went wrong."""
_WORKER = "worker"


class WorkerSecrets:
    """For all of `served` but the stores' own namespace. Belongs to one event loop."""

    def __init__(
        self,
        served: Sequence[ServedNamespace],
        config: OperatorConfig,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._served = [one for one in served if one.name != config.namespace]
        self._name = config.store.auth_secret
        self._monotonic_s = monotonic_s
        self._due_s: dict[str, float] = {}
        self._told: dict[str, str] = {}
        """Namespace -> what went wrong there last, "" for nothing."""

    async def turn(self, passwords: StorePasswords | None) -> None:
        """Look, where that was not done just now. What goes wrong in one namespace holds up no other. Raises
        LeaseLost. `passwords` None: they are not known yet."""
        now_s = self._monotonic_s()
        if passwords is None:
            return
        for one in self._served:
            if one.is_open and now_s >= self._due_s.get(one.name, now_s):
                await self._look(one, _workers_part(passwords), now_s)

    async def _look(self, served: ServedNamespace, data: dict[str, str], now_s: float) -> None:
        told, pause_s = "", _LOOK_S
        try:
            if not await self._keep(served, data):
                pause_s = 0.0
        except (RetryError, PermanentError) as error:
            told, pause_s = str(error), _AGAIN_S
        if told and told != self._told.get(served.name):
            _LOG.warning("workers of namespace %s cannot be given their password: %s", served.name, told)
        self._told[served.name] = told
        self._due_s[served.name] = now_s + pause_s

    async def _keep(self, served: ServedNamespace, data: dict[str, str]) -> bool:
        """Whether it is as it should be."""
        there = await served.cluster.get(SECRETS, self._name)
        if there is not None and (there.get("data") or {}) == data:
            return True
        if there is None:
            outcome = await served.cluster.create(SECRETS, self._document(served.name, data))
        else:
            outcome = await served.cluster.replace(SECRETS, {**there, "data": data})
        if isinstance(outcome, Refusal):
            return False
        _LOG.info("workers of namespace %s are given their password, in Secret %s", served.name, self._name)
        return True

    def _document(self, namespace: str, data: dict[str, str]) -> Object:
        return {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {
                "name": self._name,
                "namespace": namespace,
                "labels": component_labels(COMPONENT_WORKER),
            },
            "type": "Opaque",
            "data": data,
        }


def _workers_part(passwords: StorePasswords) -> dict[str, str]:
    texts = {password_key(_WORKER): passwords.current[_WORKER], SPARK_KEY: passwords.spark_key}
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
