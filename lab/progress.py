"""What the commands of a lab show while they work: a sentence for each step, and a bar for what can be counted."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Task

Report = Callable[[str], None]
"""Called with a sentence at each step."""

Count = Callable[[str, int, int | None], None]
"""Called with what is counted, the number so far and, if it is known, the number of all."""

_LINE_EVERY_S = 10.0


class Display:
    """A terminal: it is a Report, and shows counts as a bar."""

    def __init__(self, step: Report, count: Count) -> None:
        self._step = step
        self.count = count

    def __call__(self, step: str) -> None:
        """Show the next step."""
        self._step(step)


class Lines:
    """Counts as lines of a Report, at most one each ``every_s`` seconds, the first after as long."""

    def __init__(
        self, report: Report, every_s: float = _LINE_EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._every_s = every_s
        self._clock = clock
        self._last = clock()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Report the count, unless another was reported a moment ago."""
        if self._clock() - self._last >= self._every_s:
            self._last = self._clock()
            self._report(f"{what}: {done}" if total is None else f"{what}: {done} of {total}")


def counting(report: Report) -> Count:
    """Return how to show counts where steps go to ``report``."""
    return report.count if isinstance(report, Display) else Lines(report)


@contextmanager
def shown() -> Iterator[Report]:
    """Show steps on standard error with the seconds so far; on a terminal also a bar for what is counted."""
    from rich.console import Console

    begin = time.monotonic()
    console = Console(stderr=True, highlight=False)

    def line(step: str) -> None:
        console.print(f"{time.monotonic() - begin:6.1f} s  {step}", markup=False)

    if not console.is_terminal:
        yield line
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    class Bar(BarColumn):
        """Nothing until there is something to count."""

        def render(self, task: "Task") -> "RenderableType":  # type: ignore[override]  # a column renders anything
            return "" if task.total is None else super().render(task)

    class Numbers(MofNCompleteColumn):
        """The number so far, and of all if it is known."""

        def render(self, task: "Task") -> "RenderableType":  # type: ignore[override]  # a column renders anything
            if task.total is None:
                return f"{task.completed:.0f}" if task.completed else ""
            return super().render(task)

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), Bar(), Numbers()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("looking for programs", total=None)

        def step(text: str) -> None:
            line(text)
            bar.reset(task, description=text, total=None)

        def count(what: str, done: int, total: int | None) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield Display(step, count)
