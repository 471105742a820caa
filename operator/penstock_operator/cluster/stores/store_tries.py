"""Which of the stores' actions are carried out now: what was refused is tried again after a while.

The decision says them at every look, until they show in what is seen. Growth of a volume never does: its
StatefulSet's claim stays as it was made. No I/O, no clock; it may be lost at any time. Neighbours:
`node_stores` decides, `stores_turn` carries out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock_operator.cluster.decisions.actions import ApplyNodeStore, DeleteNodeStore, Event, GrowVolume
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_TEMPLATE

StoreAction = ApplyNodeStore | DeleteNodeStore | GrowVolume

REFUSED_AGAIN_S = 60.0
GROWN_AGAIN_S = 300.0
"""A claim may have been made anew by then."""

_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Try:
    again_s: float
    notice: tuple[str, Event] | None = None


@dataclass(slots=True)
class StoreTries:
    """Belongs to one loop."""

    _tries: dict[_Key, _Try] = field(default_factory=dict)

    def due(self, actions: Sequence[StoreAction], now_s: float) -> list[StoreAction]:
        """Those of `actions` to carry out now; what is decided no more is forgotten."""
        wanted = {_key(action) for action in actions}
        self._tries = {key: one for key, one in self._tries.items() if key in wanted}
        return [a for a in actions if (one := self._tries.get(_key(a))) is None or one.again_s <= now_s]

    def tried(self, done: Sequence[StoreAction], refused: Mapping[str, str], now_s: float) -> None:
        """`refused` is the name of an action's object -> what the API server said."""
        for action in done:
            message = refused.get(action.name)
            if message is not None:
                self._tries[_key(action)] = _Try(now_s + REFUSED_AGAIN_S, _notice(action, message))
            elif isinstance(action, GrowVolume):
                self._tries[_key(action)] = _Try(now_s + GROWN_AGAIN_S)
            else:
                self._tries.pop(_key(action), None)

    @property
    def notices(self) -> tuple[tuple[str, Event], ...]:
        """(StatefulSet, what people are told of it), as long as it holds."""
        return tuple(one.notice for one in self._tries.values() if one.notice is not None)


def _key(action: StoreAction) -> _Key:
    match action:
        case ApplyNodeStore(name=name, document=document):
            return name, str(document["metadata"]["annotations"][ANNOTATION_TEMPLATE])
        case DeleteNodeStore(name=name, uid=uid):
            return name, uid
        case GrowVolume(name=name, size=size):
            return name, size


def _notice(action: StoreAction, message: str) -> tuple[str, Event]:
    if isinstance(action, GrowVolume):
        told = f"the volume does not grow to {action.size}: {message}"
        return action.stateful_set, Event("Warning", "StoreVolumeKept", told)
    return action.name, Event("Warning", "StoreRefused", message)
