"""A function in a thread of its own: what it does to its thread, such as entering a namespace, ends with it."""

import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def in_thread(function: Callable[[], _T]) -> _T:
    """Run a function to its end in a fresh thread, and hand back what it returns or raises."""
    results: list[_T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # it is raised again, in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
