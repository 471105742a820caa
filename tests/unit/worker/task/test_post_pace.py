"""When a task sends work, and when it settles what it sent."""

from __future__ import annotations

from penstock_worker.task.post_pace import (
    HELD_US_MAX,
    POST_COMMITS,
    POST_COMMITS_DURABLE,
    POST_COMMITS_OF_SOURCE,
    POSTS_AHEAD,
    PostPace,
)


def test_some_commits_are_sent_together_fewer_of_a_source_and_in_mode_disk_many() -> None:
    usual, of_source = PostPace(durable=False), PostPace(durable=False, source=True)
    kinds = (
        (usual, POST_COMMITS),
        (of_source, POST_COMMITS_OF_SOURCE),
        (PostPace(durable=True), POST_COMMITS_DURABLE),
    )
    for pace, most in kinds:
        assert [pace.is_due(done, 0) for done in (most - 1, most)] == [False, True]


def test_nothing_that_is_done_is_held_for_long_and_of_nothing_there_is_no_post() -> None:
    pace = PostPace(durable=True)
    assert [pace.is_due(1, waited) for waited in (HELD_US_MAX - 1, HELD_US_MAX)] == [False, True]
    assert not pace.is_due(0, 10 * HELD_US_MAX)


def test_a_post_is_settled_when_others_are_ahead_or_it_is_old() -> None:
    pace = PostPace(durable=False)
    assert [pace.is_to_settle(posts, 0) for posts in (POSTS_AHEAD, POSTS_AHEAD + 1)] == [False, True]
    assert pace.is_to_settle(1, HELD_US_MAX)
