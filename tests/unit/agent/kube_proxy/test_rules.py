from pathlib import Path

import pytest

from kube_nftlb.agent.kube_proxy import rules


@pytest.mark.parametrize(
    ("names", "there"), [(None, False), ("", False), ("filter\nmangle\n", False), ("nat\nfilter\n", True)]
)
def test_rules_of_iptables_legacy_are_noticed_though_not_read(
    names: str | None, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four, six = tmp_path / "ip_tables_names", tmp_path / "ip6_tables_names"
    if names is not None:
        six.write_text(names)
    monkeypatch.setattr(rules, "_LEGACY", (four, six))
    assert rules.has_legacy_nat() is there
