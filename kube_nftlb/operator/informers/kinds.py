"""The kinds that the operator watches. No I/O."""

from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, NODES, POLICIES, SERVICE_CIDRS, SERVICES

BY_KOPF = (SERVICES, POLICIES)
"""Watched by kopf."""

_LISTED_AGAIN = (ENDPOINT_SLICES, FARMS, NFTLB_NODES)

WATCHED = (NODES, SERVICE_CIDRS, *_LISTED_AGAIN)
"""Watched by ``Informers``."""

KINDS = (*BY_KOPF, *_LISTED_AGAIN)
"""All kinds that the operator lists again, to repair the cache: not Pods, nor those whose addresses alone matter."""
