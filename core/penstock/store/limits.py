"""The caps on one call, checked before it leaves: a store must never be kept busy by one caller.

Both adapters ask here first. Whoever builds calls (`ownership`'s users) splits its work so
that none is ever refused; a refusal is a bug, hence ValueError.
"""

from __future__ import annotations

from typing import Any

from penstock.store.port import Append, Bounds, Commit, Request


def check_limits(call: Request[Any], bounds: Bounds) -> int:
    """How many bytes of outputs and state a commit carries; 0 for other calls.

    Raises ValueError for a call that is larger than `bounds` allow, or that can mean nothing.
    """
    if isinstance(call, Commit):
        return _check_commit(call, bounds)
    if isinstance(call, Append) and len(call.payload) > bounds.entry_bytes_max:
        raise ValueError(_too_large(call.target, len(call.payload), bounds))
    return 0


def _check_commit(call: Commit, bounds: Bounds) -> int:
    if len(call.outputs) > bounds.outputs_per_commit_max:
        raise ValueError(
            f"a commit of {call.shard} with {len(call.outputs)} outputs; "
            f"at most {bounds.outputs_per_commit_max} are allowed"
        )
    commit_bytes = 0
    for output in call.outputs:
        commit_bytes += len(output.payload)
        if len(output.payload) > bounds.entry_bytes_max:
            raise ValueError(_too_large(output.target, len(output.payload), bounds))
    for write in call.state:
        commit_bytes += len(write.value or b"")
        if write.field is None and not write.collection:
            raise ValueError(f"the value hash of {call.shard} cannot be deleted whole")
    if call.timers:
        commit_bytes += sum(len(timer.name) for timer in call.timers)
    if commit_bytes > bounds.commit_bytes_max:
        raise ValueError(
            f"a commit of {call.shard} with {commit_bytes} bytes; {bounds.commit_bytes_max} are allowed"
        )
    return commit_bytes


def _too_large(target: str, size_bytes: int, bounds: Bounds) -> str:
    return f"an entry of {size_bytes} bytes for {target}; at most {bounds.entry_bytes_max} are allowed"
