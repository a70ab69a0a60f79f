"""A value of each annotation, what it makes of a farm or a backend, and what it needs beside it."""

from typing import Any

from kube_nftlb.environment import NumberRanges
from kube_nftlb.operator.farms.builder import Profile
from kube_nftlb.operator.model.permissions import Permissions

_ALL = NumberRanges(((0, 0xFFFFFFFF),), "all")
GENEROUS = Profile(permissions=Permissions(marks=_ALL, queues=_ALL))
"""Settings with which annotations may ask for all that there is."""

SERVICE_KEYS: dict[str, tuple[str, dict[str, Any]]] = {
    "mode": ("dnat", {"mode": "dnat"}),
    "engine": ("nftables", {"engine": "nftables"}),
    "scheduler": ("symhash", {"scheduler": "symhash"}),
    "sched-param": ("srcport srcip", {"scheduler": "hash", "schedParam": "srcip srcport"}),
    "persistence": ("srcmac", {"persistence": "srcmac"}),
    "persist-ttl": ("600", {"persistTTL": 600}),
    "sessions": (
        "10.0.0.1=pod-a, 10.0.0.2=pod-b",
        {
            "persistence": "srcip",
            "sessions": [{"client": "10.0.0.1", "backend": "pod-a"}, {"client": "10.0.0.2", "backend": "pod-b"}],
        },
    ),
    "helper": ("ftp", {"helper": "ftp"}),
    "log": ("output,input", {"log": "input output", "logPrefix": "web"}),
    "log-prefix": ("in the lab: ", {"logPrefix": "in the lab:"}),
    "source-addr": ("10.0.0.9", {"sourceAddress": "10.0.0.9"}),
    "mark": ("0xA000", {"mark": "0xa000"}),
    "priority": ("2", {"priority": 2}),
    "queue": ("3", {"queue": 3}),
    "intra-connect": ("false", {"intraConnect": False}),
    "state": ("drain", {"state": "drain"}),
    "on-gone": ("cut", {"onGone": "cut"}),
    "policies": ("office, vpn office", {"policies": ["office", "vpn"]}),
    "new-rtlimit": ("100", {"limits": {"new": "100/second"}}),
    "new-rtlimit-burst": ("7", {"limits": {"new": "5/second", "newBurst": 7}}),
    "new-rtlimit-log-prefix": ("new", {"limits": {"new": "5/second", "newLogPrefix": "new"}}),
    "rst-rtlimit": ("10/minute", {"limits": {"reset": "10/minute"}}),
    "rst-rtlimit-burst": ("8", {"limits": {"reset": "5/second", "resetBurst": 8}}),
    "rst-rtlimit-log-prefix": ("rst", {"limits": {"reset": "5/second", "resetLogPrefix": "rst"}}),
    "est-connlimit": ("50", {"limits": {"established": 50}}),
    "est-connlimit-log-prefix": ("est", {"limits": {"established": 5, "establishedLogPrefix": "est"}}),
    "tcp-strict": ("true", {"limits": {"tcpStrict": True}}),
    "tcp-strict-log-prefix": ("odd", {"limits": {"tcpStrict": True, "tcpStrictLogPrefix": "odd"}}),
    "limits-ttl": ("30", {"limits": {"forgetSeconds": 30}}),
    "log-rtlimit": ("6/hour", {"limits": {"logRate": "6/hour"}}),
    "verdict": ("drop", {"limits": {"verdict": "drop"}}),
}
"""Of a Service."""

POD_KEYS: dict[str, tuple[str, dict[str, Any]]] = {
    "weight": ("3", {"weight": 3}),
    "priority": ("2", {"priority": 2}),
    "source-addr": ("10.0.0.9", {"sourceAddress": "10.0.0.9"}),
    "mark": ("0x10", {"mark": 16}),
    "est-connlimit": ("50", {"established": 50}),
    "est-connlimit-log-prefix": ("many", {"establishedLogPrefix": "many", "established": 5}),
    "state": ("drain", {"state": "drain"}),
}
"""Of a Pod."""

NEEDED_BY: dict[str, dict[str, str]] = {
    "sched-param": {"scheduler": "hash"},
    "sessions": {"persistence": "srcip"},
    "new-rtlimit-burst": {"new-rtlimit": "5"},
    "new-rtlimit-log-prefix": {"new-rtlimit": "5"},
    "rst-rtlimit-burst": {"rst-rtlimit": "5"},
    "rst-rtlimit-log-prefix": {"rst-rtlimit": "5"},
    "est-connlimit-log-prefix": {"est-connlimit": "5"},
    "tcp-strict-log-prefix": {"tcp-strict": "on"},
}
"""The annotations without which one means nothing."""
