"""The contents of ``kubectl nftlb get SERVICE``. No I/O."""

from dataclasses import dataclass


@dataclass(frozen=True)
class BackendView:
    """A backend on some nodes: what it gets there, or why it gets nothing."""

    name: str
    address: str
    node: str
    weight: int
    gets: str


@dataclass(frozen=True)
class NodesView:
    """The answer of one or more nodes."""

    nodes: tuple[str, ...]
    does: str
    backends: tuple[BackendView, ...]


@dataclass(frozen=True)
class AddressView:
    """An address of a farm: who is admitted and who is masqueraded there; empty if other farms have all of it."""

    address: str
    type: str
    admitted: str
    masqueraded: str
    lost: str = ""
    """The farms that have the address, or some of its ports, or on some nodes; empty if none has."""


@dataclass(frozen=True)
class FarmView:
    """A farm of the Service, or one written by hand that refers to it."""

    name: str
    summary: str
    state: str
    addresses: tuple[AddressView, ...] = ()
    nodes: tuple[NodesView, ...] = ()
    unused: tuple[BackendView, ...] = ()
    """The backends that no node uses, and why."""


@dataclass(frozen=True)
class ServiceView:
    """A Service and its farms; ``note`` says why there are none."""

    name: str
    summary: str
    note: str
    farms: tuple[FarmView, ...]
