"""Whether topics are still those that were read: a topic that is deleted and made anew has another id.

The client library goes on in such a topic, at the same offset, without a word; so ids are asked for, by
requests that are on their way while records are worked. Neighbours: `client` makes requests, `reader`
decides.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Set
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

EVERY_US = 5_000_000
"""Ids are asked for so often: how soon a topic that is gone is told."""
_GONE_AFTER = 2
"""So many answers in a row say that a topic is not there; a broker that starts may not know it yet."""
_TIMEOUT_S = 10.0

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Topic:
    id: str = ""
    partitions: int = 0
    asked_us: int = -1
    """When the request was made whose answer is the last one."""
    missing: int = 0
    denied: KafkaError | None = None


class TopicIds:
    """Of the topics that one task reads."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._topics: dict[str, _Topic] = {}
        self._asked: Mapping[str, Future[Any]] = {}
        self._asked_us = 0
        self._due_us = 0

    def look(self, topics: Set[str], now_us: int) -> bool:
        """Take what was answered, and ask when it is time; True when the cluster has answered."""
        has_answered = False
        if self._asked and all(answer.done() for answer in self._asked.values()):
            for topic, answer in self._asked.items():
                has_answered = self._take(topic, answer) or has_answered
            self._asked = {}
        if not self._asked and topics and (now_us >= self._due_us or not topics <= self._topics.keys()):
            self._ask(topics, now_us)
        return has_answered

    def ask_soon(self) -> None:
        self._due_us = 0

    def id_of(self, topic: str, since_us: int | None = None) -> str | None:
        """None while it is not known; with `since_us`, by an answer to what was asked after that time."""
        known = self._topics.get(topic)
        if known is None or not known.id or known.missing or known.asked_us < (since_us or 0):
            return None
        return known.id

    def partitions_of(self, topic: str) -> int:
        """How many it has, as far as its id is known."""
        known = self._topics.get(topic)
        return 0 if known is None else known.partitions

    def is_gone(self, topic: str) -> bool:
        known = self._topics.get(topic)
        return known is not None and known.missing >= _GONE_AFTER

    def denied(self, topic: str) -> KafkaError | None:
        known = self._topics.get(topic)
        return known.denied if known is not None else None

    def _ask(self, topics: Collection[str], now_us: int) -> None:
        self._asked_us = now_us
        self._due_us = now_us + EVERY_US
        for topic in topics:
            self._topics.setdefault(topic, _Topic())
        self._asked = self._admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=_TIMEOUT_S)

    def _take(self, topic: str, answer: Future[Any]) -> bool:
        known = self._topics.setdefault(topic, _Topic())
        try:
            told = answer.result()
            known.id, known.partitions = str(told.topic_id), len(told.partitions)
            known.missing, known.denied = 0, None
            known.asked_us = self._asked_us
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                known.missing += 1
                self._due_us = min(self._due_us, self._asked_us + 1_000_000)
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                known.denied = error
            else:
                self._due_us = min(self._due_us, self._asked_us + 1_000_000)
                _LOG.debug("topic %s: %s", topic, error)
                return False
        return True
