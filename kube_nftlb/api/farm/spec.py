"""The validated spec of a farm."""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Self

from pydantic import ConfigDict, model_validator

from kube_nftlb.api import clients, rules
from kube_nftlb.api.backend import BackendOptions
from kube_nftlb.api.farm.fields import FarmFields
from kube_nftlb.api.farm.rules import FARM_RULES
from kube_nftlb.api.values import expand_ports

LISTENERS_MAX = 4096
"""The limit of a farm's pairs of address and port: nftlb makes four map elements of each."""


class FarmSpec(FarmFields):
    """The desired state of a farm."""

    model_config = ConfigDict(json_schema_extra=rules.schema(*FARM_RULES))

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules.check(FARM_RULES, self)
        self._check_listeners()
        self._check_sessions()
        _check_unique("backend name", (backend.name for backend in self.backends))
        _check_unique("reference", ((each.namespace, each.service, each.port) for each in self.backends_from))
        for each in self.backends_from:
            _check_unique("pod of an override", (override.pod for override in each.overrides))
        _check_unique("backend mark", (each.mark for each in self.backend_options if each.mark is not None))
        return self

    @property
    def backend_options(self) -> tuple[BackendOptions, ...]:
        """The options of all backends: of those written by hand, or those given by reference."""
        overrides: tuple[BackendOptions, ...] = tuple(each for group in self.backends_from for each in group.overrides)
        return overrides if self.backends_from else self.backends

    # Too expensive for CEL, or guaranteed by the schema (map lists) unless the CRD is older.

    def _check_listeners(self) -> None:
        listeners = [(address.ip, port) for address in self.addresses for port in expand_ports(address.ports) or [0]]
        if len(set(listeners)) != len(listeners):
            raise ValueError("two addresses have the same IP and port")
        if len(listeners) > LISTENERS_MAX:
            raise ValueError(f"{len(listeners)} pairs of address and port; at most {LISTENERS_MAX} are allowed")

    def _check_sessions(self) -> None:
        for session in self.sessions:
            clients.check(session.client, self.persistence, self.family)
        _check_unique("session client", (session.client for session in self.sessions))


def _check_unique(what: str, values: Iterable[Hashable]) -> None:
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"duplicate {what} {value!r}")
