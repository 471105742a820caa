"""Rows of counted pairs on their way, whole or refused."""

from __future__ import annotations

import pytest

from penstock.control.locality.pair_summary import EMPTY
from penstock.control.locality.pairs_row import PairsRow, UnreadableRow, pack_row, row_name, unpack_row
from penstock.control.locality.summary_wire import pack_summary

ROW = PairsRow(
    "tags", "lands", "tags-w0", 1, 3_000_000, 1_000_000, 0.25, (2, 0), 500, 64_000, ((0, 3, 500),),
    pack_summary(EMPTY),
)  # fmt: skip


def test_a_row_comes_back_as_it_was() -> None:
    assert unpack_row(pack_row(ROW))[0] == ROW
    assert row_name("tags", "lands", "tags-w0", 1) == "tags:lands:tags-w0:1"


def test_its_rate_is_that_of_all_batches() -> None:
    assert ROW.rows_per_s == pytest.approx(500 / 0.25 / 2)


@pytest.mark.parametrize("packed", [b"", b"junk", pack_row(ROW)[:-9], b"x\x9c" + pack_row(ROW)])
def test_what_is_no_row_is_refused(packed: bytes) -> None:
    with pytest.raises(UnreadableRow):
        unpack_row(packed)


@pytest.mark.parametrize("fault", [{"share": 0.0}, {"share": 1.5}, {"rows": -1}, {"at_us": 0}])
def test_what_makes_no_sense_is_refused(fault: dict[str, float]) -> None:
    fields = {name: getattr(ROW, name) for name in ROW.__struct_fields__} | fault
    with pytest.raises(UnreadableRow, match="makes no sense"):
        unpack_row(pack_row(PairsRow(**fields)))


def test_what_takes_more_than_it_may_when_it_is_unpacked_is_refused() -> None:
    fields = [getattr(ROW, name) for name in ROW.__struct_fields__[:-1]]
    large = pack_row(PairsRow(*fields, b"0" * 9_000_000))
    assert len(large) < 50_000
    with pytest.raises(UnreadableRow):
        unpack_row(large)
    with pytest.raises(UnreadableRow):
        unpack_row(pack_row(ROW), 10)
