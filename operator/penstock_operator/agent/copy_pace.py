"""How much of its time a mover spends on copying ahead of a freeze. Neighbour: `moving` rests as it says."""

from __future__ import annotations


class CopyPace:
    """A bucket of seconds: copying takes out what it lasted, time puts in `share` of what goes by, and no
    more than `burst_s` is kept. So a shard that is copied in `burst_s` never waits, and whoever copies much
    and long does so in `share` of its time. Clock times are in seconds, of a clock that never goes back."""

    def __init__(self, share: float, burst_s: float, now_s: float) -> None:
        self._share = share
        self._burst_s = burst_s
        self._held_s = burst_s
        self._seen_s = now_s

    def held_s(self, now_s: float) -> float:
        """How long a copy that begins now may last without a rest; under 0 when one is due."""
        self._held_s = min(self._burst_s, self._held_s + self._share * (now_s - self._seen_s))
        self._seen_s = now_s
        return self._held_s

    def rest_after(self, began_s: float, ended_s: float) -> float:
        """How long to rest after having copied from `began_s` to `ended_s`; 0 while the bucket lasts."""
        self._held_s = self.held_s(began_s) - (1 - self._share) * (ended_s - began_s)
        self._seen_s = ended_s
        return max(0.0, -self._held_s / self._share)
