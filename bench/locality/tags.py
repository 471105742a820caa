"""A stable stream of (tag, country, padding), as that of Flickr's pictures is in section 4.4 of the paper.

Most pictures with a tag are of the tag's own country, the others of any; tags and countries are skewed. Each
source draws from all tags: rows cross links on their way to the first operator as often before a table as
behind it. Neighbour: `reconfiguration` runs it.
"""

from __future__ import annotations

import numpy as np
from bench.locality.streams import Stream
from bench.locality.topology import SOURCE

TAGS, COUNTRIES = 300, 48
TAG_SKEW, COUNTRY_SKEW = 0.6, 0.4
LOYALTY = 0.85
DRAWN = 16_384
"""Rows of a partition, which come over and over."""


def stream(hosts: int, padding_bytes: int, rate_per_s: float, seed: int) -> Stream:
    """`rate_per_s` of each host."""
    rng = np.random.default_rng(seed)
    home = rng.choice(COUNTRIES, TAGS, p=_zipf(COUNTRIES, COUNTRY_SKEW))
    pairs = {}
    for host in range(hosts):
        tag = rng.choice(TAGS, DRAWN, p=_zipf(TAGS, TAG_SKEW))
        anywhere = rng.choice(COUNTRIES, DRAWN, p=_zipf(COUNTRIES, COUNTRY_SKEW))
        country = np.where(rng.random(DRAWN) < LOYALTY, home[tag], anywhere)
        pairs[f"{SOURCE}/{host}"] = [
            (f"tag-{one}", f"country-{other}")
            for one, other in zip(tag.tolist(), country.tolist(), strict=True)
        ]
    return Stream(pairs, padding_bytes, rate_per_s)


def _zipf(values: int, skew: float) -> list[float]:
    weights = 1 / np.arange(1, values + 1) ** skew
    return (weights / weights.sum()).tolist()  # type: ignore[no-any-return]
