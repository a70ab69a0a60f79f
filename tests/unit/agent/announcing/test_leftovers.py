"""An agent that begins removes the routes that it does not keep."""

import pytest

from kube_nftlb.agent.announcing import leftovers
from kube_nftlb.settings import AgentSettings


def settings(addresses: str, bgp: str) -> AgentSettings:
    return AgentSettings.from_environment(
        {
            "KUBE_NFTLB_NODE_NAME": "node-1",
            "KUBE_NFTLB_ADDRESSES": addresses,
            "KUBE_NFTLB_BGP": bgp,
            "KUBE_NFTLB_BGP_TABLE": "4243",
        }
    )


@pytest.mark.parametrize(
    ("addresses", "bgp", "kept"), [("on", "on", 4243), ("on", "off", None), ("off", "on", None), ("off", "off", None)]
)
async def test_routes_stay_only_in_the_table_that_is_used(
    monkeypatch: pytest.MonkeyPatch, addresses: str, bgp: str, kept: int | None
) -> None:
    removed: list[int | None] = []
    monkeypatch.setattr(leftovers, "remove_all", removed.append)
    await leftovers.remove_earlier_routes(settings(addresses, bgp))
    assert removed == [kept]


async def test_an_agent_begins_though_routes_cannot_be_removed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: int | None) -> None:
        raise OSError(1, "not permitted")

    monkeypatch.setattr(leftovers, "remove_all", refuse)
    await leftovers.remove_earlier_routes(settings("off", "off"))
    assert "not permitted" in capsys.readouterr().out
