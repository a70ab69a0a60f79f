"""The expected destination of a connection to a Service: a model made from the documents, and of no code."""

from dataclasses import dataclass, field
from typing import Literal

Verdict = frozenset[str] | Literal["refused", "dropped"]
"""The pods among which it is balanced, or what becomes of it instead."""


@dataclass
class Pod:
    app: str
    node: str
    ready: bool = True


@dataclass
class Service:
    app: str
    local: bool = False
    """Its internal traffic policy is Local."""
    sticky: bool = False
    """All connections of a client go to one pod."""
    down: bool = False
    denied: set[str] = field(default_factory=set)
    """The places whose clients a policy denies."""
    scheduler: str = "rr"


@dataclass
class World:
    """The places from which connections come, each with the node that translates them; pods and Services by name."""

    places: dict[str, str]
    pods: dict[str, Pod] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)

    def verdict(self, name: str, place: str) -> Verdict:
        service = self.services[name]
        if place in service.denied:
            return "dropped"
        ready = {name: pod for name, pod in self.pods.items() if pod.app == service.app and pod.ready}
        if service.down or not ready:
            return "refused"
        if not service.local:
            return frozenset(ready)
        # Another node may have some: a load balancer is to try there.
        return frozenset(name for name, pod in ready.items() if pod.node == self.places[place]) or "dropped"
