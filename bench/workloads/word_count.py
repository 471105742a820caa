"""StreamSwitch's word count from end to end (section 6.6): Split, then Count, on Samza.

Figures are marked as published or assumed; none was chosen by looking at a policy's result.
"""

from __future__ import annotations

import numpy as np
from bench.workloads.sinusoid import Sinusoid, draw
from numpy.typing import NDArray

LOAD = Sinusoid(15_000, 3_750, 300)
"""Sentences: published (15K a second, +-25%, 5 minutes)."""
LATENCY_MS = 2_000.0
"""L from end to end: published."""
WINDOW_MS = 1_000
"""T: published."""
SPLITS_MS = ((500, 1500), (750, 1250), (1000, 1000), (1250, 750), (1500, 500))
"""(L of Split, L of Count): published."""
WARM_UP_S, MEASURED_S = 300.0, 600.0
"""Published: 10-minute runs with a warm-up of 5 minutes. (Or the warm-up is within them: the text allows
both.)"""
WORDS_PER_SENTENCE = 10
"""Assumed."""
SPLIT_PER_S = 1_600.0
"""Sentences per second of a Split executor. Assumed such that the base rate needs 10 of them, as
published."""
COUNT_PER_S = 7_800.0
"""Words per second of a Count executor. Assumed such that the base rate needs 20 of them, as published."""
SHARDS = 64
"""Of each operator; assumed."""
WORDS, WORD_EXPONENT = 10_000, 0.5
"""Assumed: the vocabulary and its power law."""
SWITCHING_MS, START_UP_MS = 400.0, 1_000.0
"""Assumed, as for the stock exchange, which runs on Samza too."""
SERVICE_SCV = 1.0
"""Assumed: exponential service times."""
_STREAM = 3


def sentences(seed: int) -> NDArray[np.int64]:
    """Rows of each slot of 100 ms and shard of Split, [slots, shards]: spread evenly."""
    return draw(LOAD, WARM_UP_S + MEASURED_S, np.ones(SHARDS), (_STREAM, seed))


def word_shares(seed: int) -> NDArray[np.float64]:
    """Share of the words that each shard of Count gets, [shards]."""
    random = np.random.default_rng((_STREAM, seed, WORDS))
    weights = np.arange(1, WORDS + 1, dtype=np.float64) ** -WORD_EXPONENT
    held = np.bincount(random.permutation(WORDS) % SHARDS, weights=weights, minlength=SHARDS)
    shares: NDArray[np.float64] = held / held.sum()
    return shares
