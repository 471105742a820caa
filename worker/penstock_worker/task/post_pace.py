"""When work is sent to the store, and when what was sent is settled. Pure. Neighbour: `task.loop` sends."""

from __future__ import annotations

POST_COMMITS = 8
"""So many commits are sent together, while work on the other fetched shards goes on."""
POST_COMMITS_OF_SOURCE = 4
"""Those of a source are larger, and it gathers by how long they take: work on other partitions is in that."""
POST_COMMITS_DURABLE = 64
"""In mode Disk the store syncs once for all that it finds to read: few large posts cost fewer syncs."""
POSTS_AHEAD = 2
"""So many posts are on their way before the first of them is settled: by then its answers have come."""
HELD_US_MAX = 5_000
"""Work is sent, and what was sent is settled, after so long also where less has gathered: what the first
shards put out does not wait for user code that takes its time over the others."""


class PostPace:
    """Of one task."""

    def __init__(self, *, durable: bool, source: bool = False) -> None:
        usual = POST_COMMITS_OF_SOURCE if source else POST_COMMITS
        self._commits = POST_COMMITS_DURABLE if durable else usual

    def is_due(self, done: int, waited_us: int) -> bool:
        """Whether so many commits are to be sent, the last ones having gone `waited_us` ago."""
        return done >= self._commits or (done > 0 and waited_us >= HELD_US_MAX)

    def is_to_settle(self, posts: int, oldest_us: int) -> bool:
        """Whether the oldest of so many posts is to be settled, sent `oldest_us` ago."""
        return posts > POSTS_AHEAD or oldest_us >= HELD_US_MAX
