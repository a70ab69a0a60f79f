"""The links of pods on a node."""

from collections.abc import Callable, Mapping

from kube_nftlb.agent.dsr.modes import NO_LINKS, Links, PodVip


class FakePodLinks:
    """A node with the interfaces that a test says, and pods that keep what they are given."""

    def __init__(self, links: Links = NO_LINKS) -> None:
        self.links = self.found = links
        """``found`` is what the next look finds."""
        self.incomplete = False
        self.calls = 0
        """How often pods were provided for."""
        self.provided: dict[str, frozenset[PodVip]] = {}
        self.tidied_for: Callable[[str], bool | None] = lambda _: None
        """Tells which farms may be served, by the last ``tidy``; None before the first."""

    async def look(self) -> bool:
        before, self.links = self.links, self.found
        return self.links != before

    async def provide(self, vips: Mapping[str, frozenset[PodVip]]) -> None:
        self.calls += 1
        self.provided.update(vips)

    async def tidy(
        self, may_be_served: Callable[[str], bool], is_as_before: Callable[[str], bool] = lambda _: False
    ) -> None:
        del is_as_before
        self.tidied_for = may_be_served
