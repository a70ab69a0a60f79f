"""NftlbFarm: one load-balanced Service port in one address family, independent of any node."""

from kube_nftlb.api.farm.address import POLICIES_MAX, SOURCE_RANGES_MAX, Address
from kube_nftlb.api.farm.backends_from import GATED_IPS_MAX, OVERRIDES_MAX, REFERENCES_MAX, BackendsFrom, Override
from kube_nftlb.api.farm.farm import Farm
from kube_nftlb.api.farm.fields import ADDRESSES_MAX, BACKENDS_MAX, ENDPOINTS_MAX
from kube_nftlb.api.farm.session import SESSIONS_MAX, Session
from kube_nftlb.api.farm.spec import LISTENERS_MAX, FarmSpec
from kube_nftlb.api.farm.status import FarmStatus

__all__ = [
    "ADDRESSES_MAX",
    "BACKENDS_MAX",
    "ENDPOINTS_MAX",
    "GATED_IPS_MAX",
    "LISTENERS_MAX",
    "OVERRIDES_MAX",
    "POLICIES_MAX",
    "REFERENCES_MAX",
    "SESSIONS_MAX",
    "SOURCE_RANGES_MAX",
    "Address",
    "BackendsFrom",
    "Farm",
    "FarmSpec",
    "FarmStatus",
    "Override",
    "Session",
]
