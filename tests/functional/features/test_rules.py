"""The API server decides about values of fields as the rules in Python do."""

import pytest

from kube_nftlb.api import rules
from kube_nftlb.api.rules import Rule
from tests.builders.manifests import farm
from tests.functional.cluster import Cluster
from tests.unit.api.test_rules import ADDRESS_TEXTS, RANGE_TEXTS


@pytest.mark.parametrize(
    ("field", "rule", "texts"),
    [("ip", rules.IP_OR_EMPTY, ADDRESS_TEXTS), ("sourceRanges", rules.SOURCE_RANGE, RANGE_TEXTS)],
    ids=["addresses", "ranges"],
)
def test_the_api_server_rejects_what_the_rule_rejects(
    cluster: Cluster, field: str, rule: Rule[str], texts: list[str]
) -> None:
    values = {
        f"spec.addresses[{i}].{field}{'[0]' if field == 'sourceRanges' else ''}": text for i, text in enumerate(texts)
    }
    addresses = [
        {"ip": f"10.99.0.{i}", "ports": "80", field: [text] if field == "sourceRanges" else text}
        for i, text in enumerate(texts, start=1)
    ]
    # One invalid value that is always there, so that the API server refuses the farm and lists all of them.
    said = cluster.refused(farm("wrong", "default", addresses=addresses, schedParam="srcip"))
    rejected = {text for path, text in values.items() if f"{path}: Invalid value" in said}
    assert rejected == {text for text in texts if not rule.holds(text)}
