"""The number of elements of a farm."""

from typing import Any

import pytest

from kube_nftlb.agent.table.element_count import elements
from kube_nftlb.limits import NamespaceLimits
from tests.builders import Grouped, farm, grouped_farm, raw_backend


def backends(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [
        raw_backend(f"b{number}", f"10.244.{number // 250}.{number % 250 + 1}", **fields) for number in range(count)
    ]


RANGE = [{"ip": "10.96.0.10", "ports": "1001-2024"}]


@pytest.mark.parametrize(
    ("fields", "least", "most"),
    [
        pytest.param({}, 4, 20, id="a small farm"),
        pytest.param({"addresses": RANGE, "backends": backends(200)}, 1024, 15_000, id="ports alone"),
        pytest.param(
            {"addresses": RANGE, "backends": backends(200, sourceAddress="10.0.0.9")},
            204_800,
            220_000,
            id="source addresses of backends at each port",
        ),
        pytest.param(
            {"addresses": RANGE, "backends": backends(200), "engine": "nftables"},
            204_800,
            220_000,
            id="backends at each port",
        ),
        pytest.param(
            {"backends": backends(200, weight=3), "engine": "nftables"}, 200, 500, id="equal weights count once"
        ),
        pytest.param(
            {"addresses": [{"type": "NodePort", "ports": "30080"}], "backends": backends(9), "engine": "nftables"},
            27,
            100,
            id="a node port, on each of three addresses",
        ),
        pytest.param({"backends": backends(2), "engine": "nftables"}, 20, 40, id="the chain that chooses"),
        pytest.param(
            {
                "backends": [*backends(99, weight=100), raw_backend("last", "10.244.9.9", weight=99)],
                "trafficPolicy": "Local",
            },
            1100,
            1120,
            id="the rule of clients of the node, with engine nftlb",
        ),
        pytest.param(
            {"backends": backends(2), "engine": "nftables", "persistence": "srcip", "trafficPolicy": "Local"},
            100,
            140,
            id="the chains of clients of the node, and those that remember clients",
        ),
    ],
)
def test_a_farm_has_about_as_many(fields: dict[str, Any], least: int, most: int) -> None:
    assert least <= elements(farm(**fields).spec, 3) <= most


LIMITS = {"new": "5/second", "reset": "5/second", "established": 5}


@pytest.mark.parametrize("engine", ["nftlb", "nftables"])
def test_each_limit_counts_for_the_clients_that_it_tells_apart(engine: str) -> None:
    def of(limits: dict[str, Any]) -> int:
        return elements(farm(engine=engine, limits=limits).spec, 3)

    assert of({"tcpStrict": True, "newBurst": 9}) == of({}), "it tells no clients apart"
    assert len({of({name: value}) for name, value in LIMITS.items()}) == 1
    assert of(LIMITS) - of({}) > 10_000
    assert of(LIMITS) - of({}) == 3 * (of({"new": "5/second"}) - of({}))


def test_limits_on_a_handful_of_ports_fit_and_on_a_thousand_do_not() -> None:
    budgets, each = NamespaceLimits(), elements(farm(limits=LIMITS).spec, 3)
    assert each <= budgets.farm_elements / 8
    assert 2 * 20 * each <= budgets.elements, "20 ports in both families"
    assert 100 * each > budgets.elements, "their sets would have 4 GB if full"


@pytest.mark.parametrize(
    ("weights", "engine", "drawn"),
    [
        ((7, 3), "nftables", 10),
        ((997, 4), "nftables", 1000),
        ((5, 0), "nftables", 0),
        ((997, 4), "nftlb", 0),
    ],
)
def test_groups_cost_the_numbers_that_are_drawn_for_each_port(
    weights: tuple[int, int], engine: str, drawn: int
) -> None:
    def of(*some: int) -> int:
        groups = {f"s{number}": Grouped(weight, [f"10.244.0.{number + 1}"]) for number, weight in enumerate(some)}
        return elements(grouped_farm(groups=groups, addresses=RANGE, engine=engine).spec, 3)

    chains = 2 * 16 if engine == "nftables" else 0
    assert of(*weights) - of(0, 0) == 1024 * drawn
    assert 0 <= of(0, 0) - of(0) - chains < 2 * 1024, "one endpoint more, and the chains"
