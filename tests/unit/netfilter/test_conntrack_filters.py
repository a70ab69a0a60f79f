"""How often the table of connections is walked through for a search."""

import pytest

from kube_nftlb.netfilter.conntrack.filters import TRANSLATED, UNANSWERED, to_targets

_TCP = 6
TARGETS = [(bytes((10, 96, 0, last)), _TCP, 80) for last in range(9)]


@pytest.mark.parametrize(
    ("targets", "narrowed", "walks"),
    [
        pytest.param(1, TRANSLATED, 1, id="one"),
        pytest.param(8, TRANSLATED, 8, id="many connections, which are not all read"),
        pytest.param(9, TRANSLATED, 1, id="many targets"),
        pytest.param(1, UNANSWERED, 1, id="one that is unanswered"),
        pytest.param(2, UNANSWERED, 1, id="few connections, which are all read at once"),
    ],
)
def test_walks(targets: int, narrowed: bytes, walks: int) -> None:
    found = to_targets(TARGETS[:targets], narrowed)
    assert len(found) == walks
    assert all(narrowed in each for each in found)
