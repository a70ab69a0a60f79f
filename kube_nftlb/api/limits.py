"""What an NftlbFarm lets its clients do at most."""

from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import Annotation, Model, Nftlb
from kube_nftlb.api.values import LogPrefix, Rate, Verdict


class Limits(Model):
    """Limits of a farm, each for one client address, and what happens where one is passed."""

    new: Annotated[
        Rate | None,
        Nftlb("new-rtlimit", unset="0/second"),
        Annotation(),
        Field(description="New connections, such as 100/second; absent: any number."),
    ] = None
    new_burst: Annotated[
        int | None,
        Nftlb("new-rtlimit-burst", unset="0"),
        Annotation(),
        Field(description="How many new connections may come at once before that rate counts.", ge=1, le=1000000),
    ] = None
    new_log_prefix: Annotated[
        LogPrefix | None,
        Nftlb("new-rtlimit-log-prefix"),
        Annotation(),
        Field(description="What a line begins with that the kernel logs for a new connection above the rate."),
    ] = None
    reset: Annotated[
        Rate | None,
        Nftlb("rst-rtlimit", unset="0/second"),
        Annotation(),
        Field(description="TCP resets, such as 10/second; absent: any number."),
    ] = None
    reset_burst: Annotated[
        int | None,
        Nftlb("rst-rtlimit-burst", unset="0"),
        Annotation(),
        Field(description="How many TCP resets may come at once before that rate counts.", ge=1, le=1000000),
    ] = None
    reset_log_prefix: Annotated[
        LogPrefix | None,
        Nftlb("rst-rtlimit-log-prefix"),
        Annotation(),
        Field(description="What a line begins with that the kernel logs for a TCP reset above the rate."),
    ] = None
    established: Annotated[
        int | None,
        Nftlb("est-connlimit", unset="0"),
        Annotation(),
        Field(description="Connections at once; absent: any number.", ge=1, le=1000000),
    ] = None
    established_log_prefix: Annotated[
        LogPrefix | None,
        Nftlb("est-connlimit-log-prefix"),
        Annotation(),
        Field(description="What a line begins with that the kernel logs for a connection above that number."),
    ] = None
    tcp_strict: Annotated[
        bool,
        Nftlb("tcp-strict", unset="off"),
        Annotation(),
        Field(description="Whether TCP packets with flags that no honest client sends are dropped."),
    ] = False
    tcp_strict_log_prefix: Annotated[
        LogPrefix | None,
        Nftlb("tcp-strict-log-prefix"),
        Annotation(),
        Field(description="What a line begins with that the kernel logs for such a packet."),
    ] = None
    ban_seconds: Annotated[
        int | None,
        Nftlb("limits-ttl", unset="120"),
        Annotation(),
        Field(description="Seconds for which nftlb remembers a client that passed a limit.", ge=1, le=86400),
    ] = None
    log_rate: Annotated[
        Rate | None,
        Nftlb("log-rtlimit", unset="0/second"),
        Annotation(),
        Field(description="How many lines are logged at most, such as 10/minute; absent: every one."),
    ] = None
    verdict: Annotated[
        Verdict | None,
        Nftlb("verdict", unset="log drop accept"),
        Annotation(),
        Field(description="What happens to a packet above a limit; absent: it is logged and dropped."),
    ] = None
