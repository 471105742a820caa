"""What a call of the port is."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

A_co = TypeVar("A_co", covariant=True)


class Request(Generic[A_co]):
    """A call of the port; the type parameter is what it answers."""

    __slots__ = ()


Call = Request[Any]
