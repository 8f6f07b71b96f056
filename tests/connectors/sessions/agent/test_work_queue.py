"""Work for the agent's thread: in order, and an answer for whoever waits."""

import threading
from collections.abc import Iterator

import pytest

from connectors.sessions.agent.callbacks import OwnershipError
from connectors.sessions.agent.work_queue import WorkQueue

PATH = "/namespace/t/ns/0x0_0xf"
AT_ONCE_SECONDS = 0.0


@pytest.fixture
def queue() -> WorkQueue:
    return WorkQueue()


@pytest.fixture
def running(queue: WorkQueue) -> Iterator[WorkQueue]:
    """A queue whose thread works until the test ends."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            queue.run(0.05)

    thread = threading.Thread(target=work)
    queue.run_in(thread)
    thread.start()
    yield queue
    ended.set()
    queue.wake()
    thread.join()


def test_everything_is_done_in_the_order_it_was_wanted(queue: WorkQueue) -> None:
    done: list[int] = []
    for number in range(3):
        queue.put(lambda number=number: done.append(number))  # type: ignore[misc]
    queue.run(AT_ONCE_SECONDS)
    assert done == [0, 1, 2]


def test_with_nothing_to_do_it_returns(queue: WorkQueue) -> None:
    queue.run(AT_ONCE_SECONDS)


def test_waking_is_harmless(queue: WorkQueue) -> None:
    queue.wake()
    queue.run(AT_ONCE_SECONDS)


def test_what_is_put_by_the_work_itself_is_done_in_the_same_run(queue: WorkQueue) -> None:
    done: list[str] = []
    queue.put(lambda: queue.put(lambda: done.append("later")))
    queue.run(AT_ONCE_SECONDS)
    assert done == ["later"]


@pytest.mark.parametrize("answer", [True, False])
def test_who_calls_gets_the_answer(running: WorkQueue, answer: bool) -> None:
    assert running.call(PATH, lambda: answer, timeout_seconds=30) is answer


def test_who_calls_gets_the_error_and_the_thread_goes_on(running: WorkQueue) -> None:
    def fail() -> bool:
        raise OwnershipError(PATH, "another's")

    with pytest.raises(OwnershipError, match="another's"):
        running.call(PATH, fail, timeout_seconds=30)
    assert running.call(PATH, lambda: True, timeout_seconds=30)


def test_a_call_does_not_wait_for_ever(running: WorkQueue) -> None:
    go_on = threading.Event()

    def hang() -> None:
        go_on.wait(30)

    running.put(hang)
    with pytest.raises(OwnershipError, match=r"not done within 0\.01 s"):
        running.call(PATH, lambda: True, timeout_seconds=0.01)
    go_on.set()


def test_a_call_without_a_thread_is_refused_at_once(queue: WorkQueue) -> None:
    with pytest.raises(OwnershipError, match="the agent is not running"):
        queue.call(PATH, lambda: True, timeout_seconds=30)


def test_a_call_from_the_thread_itself_is_refused_at_once(queue: WorkQueue) -> None:
    queue.run_in(threading.current_thread())
    with pytest.raises(OwnershipError, match="called from one of its own callbacks"):
        queue.call(PATH, lambda: True, timeout_seconds=30)
