"""What holds for every tier: property tests draw the same cases in each run, and are not timed."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("penstock", deadline=None, derandomize=True)
settings.load_profile("penstock")
