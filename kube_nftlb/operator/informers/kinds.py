"""Which kinds the operator watches, and how. No I/O."""

from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NFTLB_NODES, SERVICES

BY_KOPF = (SERVICES,)
"""What kopf watches."""

WATCHED = (ENDPOINT_SLICES, FARMS, NFTLB_NODES)
"""What the ``reflector`` watches: what belongs to a Service, what the operator writes, what agents report."""

KINDS = (*BY_KOPF, *WATCHED)
"""All kinds that the operator lists and watches, except Pods."""
