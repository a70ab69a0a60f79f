"""The record of what pods were given, as a starting agent finds it."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kube_nftlb.agent.dsr.pod_addresses import PodAddresses


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"10.244.1.2": 1}', '{"10.244.1.2": {"of": "a later version", "vips": []}}', "\x00"]
)
def test_a_record_that_cannot_be_read_keeps_no_agent_from_starting(tmp_path: Path, content: str) -> None:
    file = tmp_path / "dsr.json"
    file.write_text(content)
    with capture_logs() as logs:
        PodAddresses(file)
    assert [each["event"] for each in logs] == ["cannot read which addresses pods were given: they keep them"]


def test_without_a_record_nothing_is_said(tmp_path: Path) -> None:
    with capture_logs() as logs:
        PodAddresses(tmp_path / "dsr.json")
    assert logs == []
