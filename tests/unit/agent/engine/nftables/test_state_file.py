"""The state file gives back what was written, and nothing that is damaged."""

from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftables.state_file import StateFile
from kube_nftlb.agent.engine.snapshot_file import SAVE_EVERY_S, SAVE_WITHIN_S
from tests.unit.agent.engine.nftables.test_placement import CLUSTER_IP, GROUPS, NODE_PORT, placed, placed_groups

SESSION: dict[str, Any] = {"persistence": "srcip", "sessions": [{"client": "10.0.0.9", "backend": "b"}]}
FARMS = {
    "web--http": placed(mode="dnat", masquerade="AsNeeded", addresses=[CLUSTER_IP, NODE_PORT], trafficPolicy="Local"),
    "sticky": placed(**SESSION)._replace(name="sticky"),
    "grouped": placed_groups(GROUPS, trafficPolicy="Local", addresses=[CLUSTER_IP, NODE_PORT])._replace(name="grouped"),
    "both": placed_groups(GROUPS, persistence="srcip")._replace(name="both"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nftables.json"


def test_what_is_written_is_read(path: Path) -> None:
    StateFile(path).save(FARMS.values(), 1, 0.0)
    # Where rules are restored, no client is remembered with a number that has just been free.
    expected = {
        name: each._replace(sticky=each.sticky and each.sticky._replace(last=0)) for name, each in FARMS.items()
    }
    assert StateFile(path).read() == expected
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_file_and_a_damaged_one_give_nothing(path: Path) -> None:
    assert StateFile(path).read() == {}
    for text in ("{", "[1, 2]", '["a", "ip", [["zz", 1]], [], [], [], null]', "\0"):
        path.write_text(text)
        assert StateFile(path).read() == {}


def test_it_is_due_when_something_changed_and_a_while_has_passed(path: Path) -> None:
    file = StateFile(path)
    assert file.due(1, 0.0, busy=True)
    file.save((), 1, 0.0)
    assert not file.due(1, 1000.0, busy=False)
    assert not file.due(2, SAVE_EVERY_S - 1, busy=False)
    assert file.due(2, SAVE_EVERY_S, busy=False)
    assert not file.due(2, SAVE_EVERY_S, busy=True)
    assert file.due(2, SAVE_WITHIN_S, busy=True)


def test_a_file_that_cannot_be_written_is_not_tried_at_every_call(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "missing" / "nftables.json")
    with pytest.raises(OSError, match="missing"):
        file.save((), 1, 0.0)
    assert not file.due(1, 1.0, busy=False)
