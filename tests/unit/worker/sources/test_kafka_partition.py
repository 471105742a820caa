"""What came of a partition and was not committed yet: order, bounds, and the position behind it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.connectors.kafka.position import FIRST, KafkaPosition
from penstock_worker.sources.kafka.partition import HELD_BYTES_MAX, SILENT_US, Partition


@dataclass
class Came:
    """A record as the client library has it."""

    number: int
    size: int = 0
    epoch: int | None = 5

    def offset(self) -> int | None:
        return self.number

    def leader_epoch(self) -> int | None:
        return self.epoch

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return b"x" * self.size


def partition(first: int, last: int, begins: int = FIRST, size: int = 0) -> Partition:
    made = Partition("in/t/0", "t", 0)
    made.begin(KafkaPosition(begins))
    for number in range(first, last):
        made.came(Came(number, size), now_us=0)
    return made


def offsets(of: Partition, rows_max: int = 100, bytes_max: int = 1 << 20) -> list[int | None]:
    return [record.offset() for record in of.some(rows_max, bytes_max)]


def test_what_was_read_stays_until_the_position_is_behind_it() -> None:
    of = partition(0, 5)
    assert offsets(of) == offsets(of) == [0, 1, 2, 3, 4]
    assert of.at(3)
    assert offsets(of) == [3, 4]
    assert not of.at(5)


def test_rows_and_bytes_are_bounded_but_for_one_record() -> None:
    of = partition(0, 5, size=1000)
    assert offsets(of, rows_max=2) == [0, 1]
    assert offsets(of, bytes_max=2500) == [0, 1]
    assert offsets(of, bytes_max=10) == [0]


def test_a_record_that_comes_again_is_passed_over() -> None:
    of = partition(0, 5)
    for number in range(2, 7):
        of.came(Came(number), now_us=0)
    assert offsets(of) == [0, 1, 2, 3, 4, 5, 6]


def test_the_position_is_behind_what_was_taken_and_behind_marks_at_the_end() -> None:
    of = partition(0, 5)
    of.ended(7, now_us=0)
    at = KafkaPosition(0, -1, "id")
    assert of.behind(of.some(2, 1000), at, "id") == KafkaPosition(2, 5, "id")
    assert of.behind(of.some(9, 1000), at, "id") == KafkaPosition(7, 5, "id")
    of.at(5)
    assert of.behind([], KafkaPosition(5, 5, "id"), "id") == KafkaPosition(7, 5, "id")


def test_it_is_full_by_what_it_holds_and_has_room_again_when_that_is_committed() -> None:
    of = partition(0, 11, size=HELD_BYTES_MAX // 10)
    assert of.is_full
    of.at(5)
    assert not of.is_full


def test_what_comes_after_a_silence_is_not_sure_to_be_of_the_same_topic() -> None:
    of = partition(0, 3)
    assert of.unsure_since_us is None
    of.came(Came(3), now_us=SILENT_US - 1)
    assert of.unsure_since_us is None
    of.came(Came(4), now_us=3 * SILENT_US)
    of.came(Came(5), now_us=3 * SILENT_US + 1)
    assert of.unsure_since_us == 3 * SILENT_US


def test_a_new_beginning_forgets_what_came() -> None:
    of = partition(0, 5)
    of.ended(5, now_us=0)
    of.begin(KafkaPosition(2))
    assert not of.at(2)
    of.came(Came(1), now_us=0)
    of.came(Came(2), now_us=0)
    assert offsets(of) == [2]
    assert of.behind([], KafkaPosition(2, 1, "id"), "id").offset == 2
