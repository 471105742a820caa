"""What DataFrames are made of: frames that are cut out of ready arrays, and the arrays of a frame.

pandas' constructor looks at whatever it is given, which for a few arrays that are right already costs more
than all else that is done with a key's rows, and its indexers cost half of that for a cut. So frames are put
together here as pandas and Arrow themselves do it, of the few parts that `pandas.core.internals` keeps for
libraries. Neighbours: `frames` has the arrays, `frame_rows` reads them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.core.internals import BlockManager, make_block


class FrameBlocks:
    """Rows of which frames are cut. Its values are copies: who is given a frame may write to it."""

    def __init__(self, names: pd.Index, arrays: Sequence[NDArray[Any]]) -> None:
        """`arrays` are the columns called `names`, all as long, each of a dtype that a frame has."""
        self._names = names
        places: dict[np.dtype[Any], list[int]] = {}
        for place, array in enumerate(arrays):
            places.setdefault(array.dtype, []).append(place)
        # The columns of a dtype are one array, as pandas has them: it cuts none twice.
        self._values = [np.stack([arrays[place] for place in of]) for of in places.values()]
        self._blocks = [
            make_block(values, of, ndim=2) for values, of in zip(self._values, places.values(), strict=True)
        ]

    def frame(self, begin: int, end: int) -> pd.DataFrame:
        """The rows from `begin` to `end`, numbered from 0. To be asked for once: two frames of the same rows
        have the same values."""
        blocks = tuple(
            make_block(values[:, begin:end], block.mgr_locs, type(block), ndim=2)
            for values, block in zip(self._values, self._blocks, strict=True)
        )
        axes = [self._names.view(), pd.RangeIndex(end - begin)]
        manager = BlockManager(blocks, axes, verify_integrity=False)
        return pd.DataFrame._from_mgr(manager, axes)  # noqa: SLF001 - as frames make others


def column_array(frame: pd.DataFrame, place: int) -> Any:
    """A column as the frame has it, to be read alone: numpy's array, or one of pandas' own."""
    return frame._get_column_array(place)  # noqa: SLF001 - a Series of each costs more than its few values
