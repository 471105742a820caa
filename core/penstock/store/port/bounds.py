"""The limits that a topology's stores keep."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one shard's queues and of one call; the same on every store of a topology."""

    inbox_bytes_max: int = 1 << 20
    inbox_entries_max: int = 4096
    outbox_bytes_max: int = 1 << 20
    outbox_entries_max: int = 4096
    drain_entries_max: int = 64
    """Waiting entries that one commit moves into inboxes, at most."""
    drain_bytes_max: int = 256 << 10
    entry_bytes_max: int = 256 << 10
    outputs_per_commit_max: int = 512
    """At about 9 microseconds an output this keeps a call under 5 ms."""
    commit_bytes_max: int = 2 << 20
    """At 2 to 3 nanoseconds a byte, likewise."""
    row_bytes_max: int = 17 << 20
    """A packed row: 16 MiB of its own, and what is around it. It travels in as many entries as it needs."""
    large_bytes_max: int = 512 << 20
    """What one row may put out and change, in as many commits as it needs."""
    chunk_bytes_max: int = 128 << 10
    """About what one call of a move between stores reads, writes or drops: bytes,"""
    chunk_entries_max: int = 400
    """and fields or entries."""
    noted_entries_max: int = 500_000
    """Changes that one round of a pre-copy notes at most; then nobody drives it, and it is given up."""

    def are_passed_by(self, outbox_bytes: int, outbox_entries: int, limit_bytes: float) -> bool:
        """Whether an outbox with a limit of its own holds more than a shard that reads on may leave there."""
        most_bytes = min(self.outbox_bytes_max, limit_bytes)
        return outbox_bytes > most_bytes or outbox_entries > self.outbox_entries_max

    def pressed(self) -> Bounds:
        """What holds in a store at its memory limit: an inbox takes an entry only while it is empty, and a
        shard with anything in its outbox is not handed out."""
        return replace(self, inbox_bytes_max=0, inbox_entries_max=0, outbox_bytes_max=0, outbox_entries_max=0)
