"""Connections whose destination is translated, as filters of requests to conntrack (linux nf_conntrack_common.h)."""

import struct
from typing import Final

from kube_nftlb.netfilter import netlink

STATUS: Final = 3
"""CTA_STATUS."""
_STATUS_MASK: Final = 26
DESTINATION_TRANSLATED: Final = 1 << 5
"""IPS_DST_NAT."""
_NUMBER: Final = struct.Struct(">I")


def _with_status(status: int) -> bytes:
    mask = netlink.attribute(_STATUS_MASK, _NUMBER.pack(DESTINATION_TRANSLATED))
    return netlink.attribute(STATUS, _NUMBER.pack(status)) + mask


TRANSLATED: Final = _with_status(DESTINATION_TRANSLATED)
"""The filter of a request for translated connections; an older kernel ignores it, and returns all."""
UNTRANSLATED: Final = _with_status(0)
