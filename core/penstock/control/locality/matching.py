"""Which part goes to which node, so that much stays where it is: an assignment of greatest value.

The Hungarian method by shortest augmenting paths, O(n^3) with rows as arrays. Neighbours: `tables` has parts
that METIS made, which knows no nodes.
"""

from __future__ import annotations

import numpy as np

from penstock.control.locality.key_graph import Floats
from penstock.control.locality.pair_summary import Integers


def matched(value: Floats) -> Integers:
    """Column of each row of a square matrix of finite values, each column once, with the greatest sum."""
    count = len(value)
    cost = value.max(initial=0.0) - value
    row_price, column_price = np.zeros(count + 1), np.zeros(count + 1)
    row_of = np.zeros(count + 1, np.int64)
    """Row of each column, from 1 on; column 0 stands for none."""
    for row in range(1, count + 1):
        row_of[0] = row
        column = 0
        least = np.full(count + 1, np.inf)
        came_from = np.zeros(count + 1, np.int64)
        is_done = np.zeros(count + 1, np.bool_)
        while row_of[column]:
            is_done[column] = True
            here = row_of[column]
            reduced = cost[here - 1] - row_price[here] - column_price[1:]
            is_better = ~is_done[1:] & (reduced < least[1:])
            least[1:][is_better] = reduced[is_better]
            came_from[1:][is_better] = column
            open_least = np.where(is_done, np.inf, least)
            open_least[0] = np.inf
            nearest = int(np.argmin(open_least))
            step = open_least[nearest]
            row_price[row_of[is_done]] += step
            column_price[is_done] -= step
            least[~is_done] -= step
            column = nearest
        while column:
            row_of[column] = row_of[came_from[column]]
            column = int(came_from[column])
    columns = np.zeros(count, np.int64)
    columns[row_of[1:] - 1] = np.arange(count)
    return columns
