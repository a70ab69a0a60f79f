"""The networks that a lab can have."""

import ipaddress
import json
import re
from pathlib import Path

import pytest

from kube_nftlb import errors
from lab import cni
from lab.addresses import NodePlan
from lab.flannel import build, config


def test_a_plugin_gives_a_pod_the_addresses_that_the_lab_reports() -> None:
    made = cni.config("ptp", NodePlan(2), 7)
    assert made["ipam"]["addresses"] == [
        {"address": "10.244.2.7/24", "gateway": "10.244.2.1"},
        {"address": "fd00:244:2::7/64", "gateway": "fd00:244:2::1"},
    ]


def test_a_network_that_the_lab_does_not_have_is_refused() -> None:
    assert cni.chosen({}) is None
    assert cni.chosen({cni.VARIABLE: "ptp"}) == "ptp"
    with pytest.raises(
        errors.LabError, match="must be one of bridge, ptp, flannel-vxlan, flannel-host-gw, not 'calico'"
    ):
        cni.chosen({cni.VARIABLE: "calico"})


def test_with_flannel_pods_have_a_bridge_and_the_mtu_that_flannel_leaves_them() -> None:
    mtu = config.mtu("FLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n")
    made = cni.config("flannel-vxlan", NodePlan(1), 2, mtu)
    assert (made["type"], made["mtu"], made["hairpinMode"]) == ("bridge", 1450, True)
    assert cni.backend({cni.VARIABLE: "flannel-host-gw"}) == "host-gw"
    assert cni.backend({cni.VARIABLE: "ptp"}) is None
    with pytest.raises(ValueError, match="no FLANNEL_MTU"):
        config.mtu("")


def test_flannels_network_is_that_of_the_nodes() -> None:
    told = json.loads(config.network("vxlan"))
    four, six = NodePlan(1).pod_cidrs
    assert four.subnet_of(ipaddress.IPv4Network(told["Network"]))
    assert six.subnet_of(ipaddress.IPv6Network(told["IPv6Network"]))
    assert told["Backend"] == {"Type": "vxlan"}


def test_the_version_of_flannel_is_pinned_by_its_sum() -> None:
    pinned = Path(build.__file__).with_name("go.sum").read_text()
    assert re.search(rf"^github.com/flannel-io/flannel {re.escape(build.version())} h1:", pinned, re.MULTILINE)
