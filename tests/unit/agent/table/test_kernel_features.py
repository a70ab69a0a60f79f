"""The kernel is asked for each feature once, whatever farms need it for."""

from kube_nftlb.agent.table.kernel_features import FeatureProbe
from tests.builders import farm
from tests.fakes.clock import FakeClock
from tests.fakes.nft import FakeNft


class _Counting(FakeNft):
    def __init__(self) -> None:
        super().__init__()
        self.checked: list[str] = []

    async def check(self, commands: str) -> str | None:
        self.checked.append(commands)
        return await super().check(commands)


async def test_queues_of_any_number_are_one_feature() -> None:
    nft = _Counting()
    features = FeatureProbe(nft)
    specs = [farm(queue=number).spec for number in (1, 2, 65535)]
    for spec in specs:
        await features.probe(spec)
    assert len(nft.checked) == 1
    assert [features.missing(spec) for spec in specs] == [None] * 3


async def test_what_the_kernel_lacks_is_asked_for_again_after_a_while() -> None:
    nft, clock = _Counting(), FakeClock()
    nft.lacks = ("queue num",)
    features = FeatureProbe(nft, clock)
    spec = farm(queue=1).spec
    for _ in range(5):
        await features.probe(spec)
    assert len(nft.checked) == 1
    assert "CONFIG_NFT_QUEUE" in (features.missing(spec) or "")
    nft.lacks = ()
    clock.time += 60
    await features.probe(spec)
    assert features.missing(spec) is None
