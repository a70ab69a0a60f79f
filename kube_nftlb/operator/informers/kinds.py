"""The kinds that the operator watches. No I/O."""

from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, POLICIES, SERVICES

BY_KOPF = (SERVICES, POLICIES)
"""Watched by kopf."""

WATCHED = (ENDPOINT_SLICES, FARMS, NFTLB_NODES)
"""Watched by ``Informers``."""

KINDS = (*BY_KOPF, *WATCHED)
"""All kinds that the operator lists again, to repair the cache: all but Pods."""
