"""Read the options of a Service: its annotations and session affinity. No I/O.

Besides the fields that the models mark (``annotation_options``), two annotations select the listeners:

- ``protocol: all``: all ports of the VIP, for TCP, UDP and SCTP. The destination port is kept.
- ``ports: 8000-8100,9000``: these ports besides the Service's own. If the targetPort equals the Service's port, the
  destination port is kept; else all ports are forwarded to the targetPort.

Both need a Service with one port. A scheduler under the key ``persistence``, as the project's predecessor documented,
is used as the scheduler, and reported.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from kube_nftlb import names
from kube_nftlb.api.base import Family, first_message
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.kubernetes.service import Service, ServicePort
from kube_nftlb.api.values import Mode, Ports, expand_ports
from kube_nftlb.operator.model import annotation_options
from kube_nftlb.operator.model.annotation_options import FARM_OPTIONS, Fields, Given, Incompatible
from kube_nftlb.operator.model.option_text import split
from kube_nftlb.operator.model.rejections import Rejection

ALL: Final = "All"
"""The protocol of a farm that listens on every port."""

_PROTOCOL, _PORTS, _SCHEDULER, _SCHED_PARAM, _PERSISTENCE = (
    "protocol",
    "ports",
    "scheduler",
    "sched-param",
    "persistence",
)
_OPTIONS: Final = {option.key: option for option in FARM_OPTIONS if option.key != _PROTOCOL}
_ADDRESS_KEYS: Final = tuple(
    key.removeprefix(names.ANNOTATION_PREFIX)
    for key in (names.ANNOTATION_ADDRESSES, names.ANNOTATION_ADDRESS_POOL, names.ANNOTATION_SHARING_KEY)
)
"""Those that decide about addresses from pools, not about farms."""
KEYS: Final = (_PROTOCOL, _PORTS, *_OPTIONS, *_ADDRESS_KEYS)
"""All annotation keys of Services, without the prefix."""

_SCHEDULERS: Final[tuple[str, ...]] = tuple(FarmSpec.model_json_schema()["properties"]["scheduler"]["enum"])
_HASH = "hash-"
"""The prefix of the predecessor's hash schedulers, before the hashed fields."""

_CLIENT_IP_TIMEOUT_S = 10800
"""The Service API's default timeout of sessionAffinity ClientIP."""

_LOCAL = "mode local is for farms without backends, and a Service has some; it can have snat, dnat or dsr"
_LOG_PREFIX_MAX = 40
_SAMPLE: Final[dict[Family, str]] = {"ipv4": "192.0.2.1", "ipv6": "2001:db8::1"}
"""Stands for the addresses of a farm while its other fields are validated."""
_PORTS_TYPE: Final[TypeAdapter[str]] = TypeAdapter(Ports)


class Listen(NamedTuple):
    """The listeners that annotations select; by default the Service's port."""

    all_ports: bool = False
    ports: str = ""
    """The ports, including the Service's own; ``""`` without the annotation."""
    keeps_port: bool = False
    """True if connections keep their destination port."""


class ServiceOptions(NamedTuple):
    """The options of a Service, and what is rejected for all of its farms."""

    service: str
    affinity: Fields
    given: Given
    listen: Listen
    problems: tuple[Rejection, ...]

    def of(
        self, family: Family, protocol: str = "TCP", also: Callable[[Fields], str | None] = lambda _: None
    ) -> tuple[Fields, list[Incompatible]]:
        """Return the fields of a farm of this family and protocol, except defaults, and the options it cannot have.

        ``also`` returns a further validation error for fields, or None.
        """
        fields, refused = annotation_options.fit(
            self.given,
            family,
            self.affinity,
            lambda attempt: also(attempt) or invalid(family, protocol, attempt),
        )
        if fields.get("log", "none") != "none" and "logPrefix" not in fields:
            fields = {**fields, "logPrefix": self.service[:_LOG_PREFIX_MAX]}
        return fields, refused


def service_options(service: Service, families: Iterable[Family], mode: Mode = "snat") -> ServiceOptions:
    """Read a Service's annotations and session affinity.

    ``families`` are those of its addresses; ``mode`` is the default mode. An invalid value or unknown key leaves the
    default, and is a problem. Annotations override the session affinity, and ``sched-param`` the parameter inside a
    scheduler such as ``hash-srcip``.
    """
    texts = annotation_options.annotations(service.metadata.annotations)
    affinity = {**_affinity(service), **({"mode": mode} if mode != "snat" else {})}
    if not texts:
        return ServiceOptions(service.metadata.name, affinity, (), Listen(), ())
    problems = annotation_options.unknown(texts, KEYS, "Service")
    problems.extend(_unfold_schedulers(texts))
    listen = _listen(service, texts, problems)
    given, refused = annotation_options.parse(_OPTIONS.values(), texts)
    problems.extend(
        annotation_options.problem(option.key, f"{message}; {annotation_options.instead(option, affinity)}")
        for option, message in refused.items()
    )
    for option, value in given:
        if all(value.of(family) is None for family in families):
            problems.append(
                annotation_options.problem(
                    option.key,
                    f"{annotation_options.shown(texts[option.key])!r} is of no family of the Service",
                )
            )
    return ServiceOptions(service.metadata.name, affinity, given, listen, tuple(problems))


def invalid(family: Family, protocol: str, fields: Fields, backends: tuple[Fields, ...] = ()) -> str | None:
    """Return why a farm of a Service cannot have these fields, or None if it can."""
    if fields.get("mode") == "local":
        return _LOCAL
    ports = "" if protocol == ALL else "1"
    spec: dict[str, Any] = {
        **fields,
        "family": family,
        "protocol": protocol,
        "addresses": [{"ip": _SAMPLE[family], "ports": ports}],
        "backends": [{"name": "sample", "ip": _SAMPLE[family], **backend} for backend in backends],
    }
    try:
        FarmSpec.model_validate(spec)
    except ValidationError as error:
        return first_message(error)
    return None


def _affinity(service: Service) -> Fields:
    """Return the persistence from a Service's own fields."""
    config = service.spec.session_affinity_config
    timeout_s = config.client_ip.timeout_seconds if config is not None and config.client_ip is not None else None
    if service.spec.session_affinity == "ClientIP":
        return {"persistence": "srcip", "persistTTL": timeout_s or _CLIENT_IP_TIMEOUT_S}
    return {"persistTTL": timeout_s} if timeout_s else {}


def _unfold_schedulers(texts: dict[str, str]) -> list[Rejection]:
    """Move a scheduler under its own key, and the hashed fields inside it under theirs."""
    problems = []
    persistence = texts.get(_PERSISTENCE, "")
    if persistence in _SCHEDULERS or _hashed(persistence):
        del texts[_PERSISTENCE]
        message = f"{persistence!r} is a scheduler: write it under the key {_SCHEDULER}"
        if _SCHEDULER in texts:
            message += ", which has another value; it is ignored"
        else:
            message += "; it is used as the scheduler"
            texts[_SCHEDULER] = persistence
        problems.append(annotation_options.problem(_PERSISTENCE, message))
    if param := _hashed(texts.get(_SCHEDULER, "")):
        texts[_SCHEDULER] = "hash"
        texts.setdefault(_SCHED_PARAM, param)
    return problems


@lru_cache(maxsize=64)
def _hashed(scheduler: str) -> str:
    """Return the fields that a scheduler of the predecessor hashes, such as srcip of hash-srcip; ``""`` for others."""
    if not scheduler.startswith(_HASH):
        return ""
    try:
        param = _OPTIONS[_SCHED_PARAM].parse(scheduler.removeprefix(_HASH))
    except annotation_options.InvalidValueError:
        return ""
    return param.ipv4 if param is not None and param.ipv4 != "none" else ""


def listen_of(service: Service) -> Listen:
    """Return the listeners that the annotations of a Service select; an invalid one selects none."""
    return _listen(service, annotation_options.annotations(service.metadata.annotations), [])


def _listen(service: Service, texts: dict[str, str], problems: list[Rejection]) -> Listen:
    protocol, ports = texts.get(_PROTOCOL), texts.get(_PORTS)
    if protocol is None and ports is None:
        return Listen()
    if protocol not in (None, "all"):
        message = f"{annotation_options.shown(protocol or '')!r} is not all; the protocol of the Service's port is used"
        problems.append(annotation_options.problem(_PROTOCOL, message))
        protocol = None
    if len(service.spec.ports) != 1:
        message = f"it needs a Service with one port, and this one has {len(service.spec.ports)}; it is ignored"
        problems.extend(
            annotation_options.problem(key, message)
            for key, text in ((_PROTOCOL, protocol), (_PORTS, ports))
            if text is not None
        )
        return Listen()
    if protocol is not None:
        if ports is not None:
            problems.append(annotation_options.problem(_PORTS, "protocol all includes every port; it is ignored"))
        if service.spec.type != "ClusterIP" and (number := service.spec.ports[0].node_port):
            message = f"with all there are no node ports: port {number} of the nodes is not served"
            problems.append(annotation_options.problem(_PROTOCOL, message))
        return Listen(all_ports=True, keeps_port=True)
    if ports is None:
        return Listen()
    (port,) = service.spec.ports
    try:
        return Listen(ports=_ports(port.port, ports), keeps_port=_same_target(port))
    except ValueError as error:
        message = first_message(error) if isinstance(error, ValidationError) else str(error)
        problems.append(annotation_options.problem(_PORTS, f"{message}; only port {port.port} is used"))
        return Listen()


def _ports(own: int, text: str) -> str:
    """Return the Service's own port and those of a text. Raises ValueError with a message for users."""
    more = ",".join(split(text))
    if annotation_options.shown(more) != more or not more:
        raise ValueError(f"{annotation_options.shown(more)!r} is not a list of 1 to 100 characters")
    return _PORTS_TYPE.validate_python(more if own in expand_ports(more) else f"{own},{more}")


def _same_target(port: ServicePort) -> bool:
    return port.target_port in (None, port.port)
