"""Keep the loop's progress up to date, and announce it."""

from collections.abc import Callable

from kube_nftlb.agent.clock import Clock
from kube_nftlb.agent.sync.inputs import Inputs


class Reporter:
    """Updates ``Progress`` from the queue and the policies."""

    def __init__(self, inputs: Inputs, clock: Clock, on_progress: Callable[[], None]) -> None:
        """``on_progress`` is called whenever the progress may have changed."""
        self._inputs = inputs
        self._clock = clock
        self._on_progress = on_progress
        self._reported: tuple[object, ...] = ()

    def report(self, *, adopted: bool) -> None:
        """Update the progress; before the engine was ``adopted`` nothing counts as done."""
        inputs = self._inputs
        inputs.progress.update(
            inputs.queue, inputs.seen_version, inputs.slices, inputs.policies, self._clock.now(), adopted=adopted
        )
        self._reported = inputs.progress.news
        self._on_progress()

    def report_news(self, *, adopted: bool) -> None:
        """Update the progress if there is any news: usually there is none."""
        inputs, progress = self._inputs, self._inputs.progress
        seen = (inputs.seen_version, inputs.slices.update(inputs.queue), inputs.policies.watermark)
        if seen != (*progress.watermarks, progress.policy_watermark) or progress.news != self._reported:
            self.report(adopted=adopted)

    def forget(self) -> None:
        """Have the next ``report_news`` report in any case."""
        self._reported = ()
