"""The networks that a lab can have."""

import pytest

from kube_nftlb import errors
from lab.addresses import NodePlan
from lab.kubelet import plugins


def test_a_plugin_gives_a_pod_the_addresses_that_the_lab_reports() -> None:
    made = plugins.config("ptp", NodePlan(2), 7)
    assert made["ipam"]["addresses"] == [
        {"address": "10.244.2.7/24", "gateway": "10.244.2.1"},
        {"address": "fd00:244:2::7/64", "gateway": "fd00:244:2::1"},
    ]


def test_a_network_that_the_lab_does_not_have_is_refused() -> None:
    assert plugins.chosen({}) is None
    assert plugins.chosen({plugins.VARIABLE: "ptp"}) == "ptp"
    with pytest.raises(errors.LabError, match="must be one of bridge, ptp, not 'calico'"):
        plugins.chosen({plugins.VARIABLE: "calico"})
