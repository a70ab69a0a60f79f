"""A node announces an address only where a client that connects at once is served."""

import pytest

from kube_nftlb.announce.ownership.gate import FarmHere, NodeHere, Reason, WhenEmpty, why_not_announce, why_not_keep

NODE = NodeHere("eth0")
ANNOUNCE, WITHDRAW = WhenEmpty.ANNOUNCE, WhenEmpty.WITHDRAW


def farm(
    name: str = "default/web", generation: int = 2, programmed: int = 2, reached: int = 1, serving: int = 3
) -> FarmHere:
    return FarmHere(name, generation, programmed, reached, serving)


@pytest.mark.parametrize(
    ("farms", "when_empty", "node", "begins", "keeps"),
    [
        ([farm()], ANNOUNCE, NODE, None, None),
        ([], ANNOUNCE, NODE, Reason.NO_FARM, Reason.NO_FARM),
        ([farm(programmed=0)], ANNOUNCE, NODE, Reason.NOT_PROGRAMMED, Reason.NOT_PROGRAMMED),
        ([farm(programmed=0)._replace(succeeds=True)], WITHDRAW, NODE, Reason.NOT_PROGRAMMED, None),
        ([farm(programmed=1)], ANNOUNCE, NODE, Reason.NOT_PROGRAMMED, None),
        ([farm(), farm("default/web2", programmed=0)], ANNOUNCE, NODE, Reason.NOT_PROGRAMMED, None),
        ([farm(reached=0)], ANNOUNCE, NODE, Reason.NO_ENDPOINT, None),
        ([farm(reached=0), farm("default/web2")], ANNOUNCE, NODE, None, None),
        ([farm(reached=0, serving=0)], ANNOUNCE, NODE, None, None),
        ([farm(reached=0, serving=0)], WITHDRAW, NODE, Reason.NO_ENDPOINT, Reason.NO_ENDPOINT),
        ([farm(reached=0, serving=1)], WITHDRAW, NODE, Reason.NO_ENDPOINT, None),
        ([farm()], ANNOUNCE, NodeHere("eth0", excluded=True), Reason.NODE_EXCLUDED, None),
        ([farm()], ANNOUNCE, NodeHere("eth0", selected=False), Reason.NOT_SELECTED, None),
        ([farm()], ANNOUNCE, NodeHere(""), Reason.NO_LINK, Reason.NO_LINK),
    ],
)
def test_who_may_begin_and_who_may_go_on(
    farms: list[FarmHere], when_empty: WhenEmpty, node: NodeHere, begins: Reason | None, keeps: Reason | None
) -> None:
    begin, keep = why_not_announce(farms, when_empty, node), why_not_keep(farms, when_empty, node)
    assert (begin.reason if begin else None, keep.reason if keep else None) == (begins, keeps)


def test_the_sentence_names_the_farm_that_is_late() -> None:
    blocker = why_not_announce([farm(), farm("shop/late", generation=7, programmed=6)], ANNOUNCE, NODE)
    assert blocker is not None
    assert blocker.message == "the farm shop/late is at generation 7, and the kernel has generation 6"
