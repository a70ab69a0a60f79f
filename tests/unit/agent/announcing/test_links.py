"""What keeps the kernel's interfaces from being read is an error that the agent retries after."""

from errno import EBUSY
from typing import Any, Self

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from kube_nftlb.agent.announcing.links import interfaces
from kube_nftlb.netfilter import rtnetlink


class Refusing:
    """A connection to a kernel that lists nothing."""

    def __init__(self, **_options: bool) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_links(self) -> Any:
        raise NetlinkError(EBUSY, "Device or resource busy")


def test_interfaces_that_the_kernel_does_not_list_are_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtnetlink, "IPRoute", Refusing)
    with pytest.raises(OSError, match="resource busy") as caught:
        interfaces()
    assert caught.value.errno == EBUSY
