"""Work running_in_background a block: it runs while the block does, and has ended when that ends, however it ends."""

import threading

import pytest

from deploy.query.supervisor import running_in_background

HANGS_SECONDS = 60


def test_it_works_while_the_block_runs_and_has_ended_with_it() -> None:
    began, ended = threading.Event(), threading.Event()

    def work(over: threading.Event) -> None:
        began.set()
        over.wait(HANGS_SECONDS)
        ended.set()

    with running_in_background("test-work", work):
        assert began.wait(HANGS_SECONDS)
        assert not ended.is_set()
    assert ended.is_set()


def test_a_block_that_fails_ends_it_too() -> None:
    ended = threading.Event()

    def work(over: threading.Event) -> None:
        over.wait(HANGS_SECONDS)
        ended.set()

    def fail() -> None:
        with running_in_background("test-work", work):
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert ended.is_set()


def test_work_that_is_done_early_holds_up_nobody() -> None:
    with running_in_background("test-work", lambda _over: None):
        pass
    assert "test-work" not in {thread.name for thread in threading.enumerate()}
