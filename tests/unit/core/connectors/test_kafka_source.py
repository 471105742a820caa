"""What a user writes of a Kafka source: faults, columns, and what is kept with the state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from penstock.connectors.kafka.place import Place
from penstock.connectors.kafka.position import FIRST, KafkaPosition, kafka_position
from penstock.connectors.kafka.rewind import Rewind
from penstock.connectors.kafka.source import KafkaSource, KafkaSourceSpec
from penstock.connectors.kafka.topics import part_name, partition_of
from penstock.dataflow.source import ADDED
from penstock.errors import PermanentError

PLAIN: dict[str, Any] = {
    "bootstrapServers": "kafka:9092",
    "topics": ["orders"],
    "value": {"format": "json", "schema": "user string, amount bigint"},
}


def planned(**fields: Any) -> KafkaSource:
    return KafkaSourceSpec.model_validate({**PLAIN, **fields}).plan()


def test_columns_are_those_of_value_key_and_metadata_in_that_order() -> None:
    fields = {
        **PLAIN,
        "key": {"format": "bytes"},
        "metadata": {"offset": "at_offset", "timestamp": "at", "headers": "headers"},
    }
    schema = KafkaSourceSpec.schema_of(fields)
    assert schema is not None
    assert [(column.name, column.type) for column in schema.columns] == [
        ("user", "string"),
        ("amount", "bigint"),
        ("key", "binary"),
        ("at", "timestamp"),
        ("at_offset", "bigint"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert KafkaSourceSpec.model_validate(fields).plan().schema == schema


@pytest.mark.parametrize(
    ("fields", "path", "says"),
    [
        ({"topicPattern": "o.*"}, "topicPattern", "topics are given too"),
        ({"topics": None}, "topics", "give topics, such as [orders], or a topicPattern"),
        ({"topics": ["a", "a"]}, "topics", "a topic is listed twice"),
        ({"value": {"format": "json"}}, "value.schema", "format json needs its columns"),
        ({"value": {"format": "string", "schema": "a int"}}, "value.schema", "format string has one column"),
        ({"value": {"format": "json", "schema": "a in"}}, "value.schema", "in"),
        ({"value": {"format": "json", "schema": "a map<int,int>"}}, "value.schema", "keys are text"),
        ({"value": {"format": "json", "schema": "a int", "column": "b"}}, "value.column", "leave it out"),
        ({"key": {"format": "string", "column": "user"}}, "key", "value has a column 'user' too"),
        ({"metadata": {"topic": "amount"}}, "metadata.topic", "value has a column 'amount' too"),
        (
            {"startingTimestamp": "2026-01-31T12:30:00Z", "startingOffsets": "Latest"},
            "startingTimestamp",
            "keep one of the two",
        ),
        ({"startingPositions": {"order": {"0": 1}}}, "startingPositions.order", "did you mean orders?"),
        ({"rewind": {"number": 1}}, "rewind", "give offsets: Earliest or Latest, a timestamp, or positions"),
        (
            {"rewind": {"number": 1, "offsets": "Latest", "timestamp": "2026-01-31T12:30:00Z"}},
            "rewind.timestamp",
            "keep one of the two",
        ),
        (
            {"rewind": {"number": 1, "positions": {"order": {"0": 1}}}},
            "rewind.positions.order",
            "did you mean orders?",
        ),
        (
            {"security": {"protocol": "SaslSsl", "mechanism": "Plain"}},
            "security.credentials",
            "give the Secret",
        ),
    ],
)
def test_what_does_not_fit_together_is_named_once(fields: dict[str, Any], path: str, says: str) -> None:
    body = {name: value for name, value in {**PLAIN, **fields}.items() if value is not None}
    (fault,) = KafkaSourceSpec.faults_of("source.kafka", body)
    assert fault.path == f"source.kafka.{path}"
    assert says in fault.message


@pytest.mark.parametrize(
    "fields",
    [
        {"topics": []},
        {"topics": ["a b"]},
        {"topicPattern": "("},
        {"startingTimestamp": "yesterday"},
        {"startingTimestamp": "2026-02-31T12:30:00Z"},
        {"startingPositions": {"orders": {"x": 1}}},
        {"startingPositions": {"orders": {"0": -1}}},
        {"metadata": {"nonsense": "a"}},
        {"rewind": {"offsets": "Earliest"}},
        {"rewind": {"number": 0, "offsets": "Earliest"}},
        {"rewind": {"number": 1, "offsets": "Middle"}},
        {"rewind": {"number": 1, "timestamp": "yesterday"}},
    ],
)
def test_what_is_no_value_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        KafkaSourceSpec.model_validate({**PLAIN, **fields})


def test_where_it_begins_is_planned() -> None:
    source = planned(startingTimestamp="2026-01-31T13:30:00.5+01:00", startingPositions={"orders": {"3": 7}})
    assert source.start == Place("Earliest", 1_769_862_600_500, (("orders", 3, 7),))
    assert source.rewind is None


def test_a_rewind_is_planned_and_is_no_part_of_what_state_depends_on() -> None:
    source = planned(rewind={"number": 2, "positions": {"orders": {"0": 5}}})
    assert source.rewind == Rewind(2, Place(positions=(("orders", 0, 5),)))
    assert source.identity_text() == planned().identity_text()


def test_what_is_added_after_a_rewind_begins_at_its_first_record_and_is_not_rewound() -> None:
    source = planned(startingOffsets="Latest", rewind={"number": 2, "offsets": "Latest"})
    assert kafka_position(source.late_position) == KafkaPosition(FIRST, rewind=2)


def at(rewind: int) -> bytes:
    return KafkaPosition(7, 1, "id", rewind).packed()


@pytest.mark.parametrize(
    ("positions", "says"),
    [
        ((), "nothing was read yet: it begins as its start says, and rewind 2 is over"),
        ((b"", ADDED), "nothing was read yet"),
        ((at(0), at(1)), "rewind 2 is carried out for 2 partitions"),
        ((at(2), at(1), at(2)), "was carried out before for 2 partitions, and is now for the other 1"),
        ((at(2), at(2)), "was carried out before, and is not again: another one needs number 3"),
    ],
)
def test_what_becomes_of_a_rewind_is_told_before_it_is_carried_out(
    positions: tuple[bytes, ...], says: str
) -> None:
    source = planned(rewind={"number": 2, "offsets": "Earliest"})
    told = source.resume_news({part_name("orders", n): one for n, one in enumerate(positions)})
    assert says in told
    assert planned().resume_news({}) == ""


def test_a_number_that_goes_down_and_an_offset_for_no_partition_are_refused() -> None:
    source = planned(rewind={"number": 2, "positions": {"orders": {"0": 5, "7": 1}}})
    with pytest.raises(PermanentError, match="rewind 3 was carried out before: give 4"):
        source.resume_news({"orders/0": at(1), "orders/1": at(3)})
    with pytest.raises(PermanentError, match="offset for topic orders, partition 7, which is not there"):
        source.resume_news({"orders/0": at(1)})
    assert "was carried out before" in source.resume_news({"orders/0": at(2)})


def test_what_is_kept_of_it_with_its_state_are_its_topics() -> None:
    assert planned().identity_text() == "topics orders"
    pattern = KafkaSourceSpec.model_validate(
        {"bootstrapServers": "a:1", "topicPattern": "o.*", "value": {"format": "bytes"}}
    )
    assert pattern.plan().identity_text() == "topics like o.*"


def test_the_group_is_named_by_topology_and_operator_unless_it_is_given() -> None:
    assert planned().of_topology("shop", "orders").group == "penstock.shop.orders"
    assert planned(group="mine").of_topology("shop", "orders").group == "mine"


def test_the_secrets_that_it_names_are_known() -> None:
    security = {"protocol": "SaslSsl", "mechanism": "Plain", "credentials": {"secret": "login"}}
    assert KafkaSourceSpec.model_validate({**PLAIN, "security": security}).secret_names == ("login",)
    assert KafkaSourceSpec.model_validate(PLAIN).secret_names == ()


def test_a_partition_is_found_again_by_its_part() -> None:
    assert partition_of(part_name("a.b-c", 12)) == ("a.b-c", 12)


def test_a_position_is_what_was_packed() -> None:
    for position in (KafkaPosition(7, 3, "id", 2), KafkaPosition(FIRST)):
        assert kafka_position(position.packed()) == position


def test_a_position_from_before_there_were_rewinds_has_none() -> None:
    assert kafka_position(msgspec.msgpack.encode((7, 3, "id"))) == KafkaPosition(7, 3, "id", 0)
