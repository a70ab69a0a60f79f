"""What a Service's annotations and session affinity ask of its farms. No I/O.

Beside the fields that the models mark (``options``), ``protocol: all`` and ``ports`` say what is listened on:

- ``protocol: all``: every port of the VIP, for TCP, UDP and SCTP, and the port that the client asked for is kept.
- ``ports: 8000-8100,9000``: these ports beside the Service's own. Where the Service's targetPort is its port, the port
  that the client asked for is kept; else every port goes to the targetPort.

Both are for a Service with one port. A scheduler under the key ``persistence``, as the project's ancestor once
documented, is taken for the scheduler that it is, and told of.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.kubernetes.service import Service, ServicePort
from kube_nftlb.api.values import Mode, Ports, expand_ports
from kube_nftlb.operator.model import annotation_options
from kube_nftlb.operator.model.annotation_options import FARM_OPTIONS, Fields, Given, Refusal
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
KEYS: Final = (_PROTOCOL, _PORTS, *_OPTIONS)
"""All keys of annotations on a Service, without their prefix."""

_SCHEDULERS: Final[tuple[str, ...]] = tuple(FarmSpec.model_json_schema()["properties"]["scheduler"]["enum"])
_HASH = "hash-"
"""What the ancestor's hash schedulers begin with; the fields that are hashed follow."""

_CLIENT_IP_TIMEOUT_S = 10800
"""What the Service API says of sessionAffinity ClientIP without a timeout."""

_LOG_PREFIX_MAX = 40
_SAMPLE: Final[dict[Family, str]] = {"ipv4": "192.0.2.1", "ipv6": "2001:db8::1"}
"""What stands for the addresses of a farm where its other fields are looked at."""
_PORTS_TYPE: Final[TypeAdapter[str]] = TypeAdapter(Ports)


class Listen(NamedTuple):
    """What the one port of a Service is asked to be; without a wish, the port as it is."""

    all_ports: bool = False
    ports: str = ""
    """The ports, the Service's own among them; "" where there is no such wish."""
    keeps_port: bool = False
    """Whether a backend gets the port that the client asked for."""


class Wishes(NamedTuple):
    """What a Service asks for, and what of it is refused for all of its farms."""

    service: str
    affinity: Fields
    given: Given
    listen: Listen
    problems: tuple[Rejection, ...]

    def of(
        self, family: Family, protocol: str = "TCP", also: Callable[[Fields], str | None] = lambda _: None
    ) -> tuple[Fields, list[Refusal]]:
        """The fields of a farm of this family and protocol that are not the defaults, and what does not go with it.

        ``also`` says what else there is against fields.
        """
        fields, refused = annotation_options.fit(
            self.given, family, self.affinity, lambda attempt: also(attempt) or complaint(family, protocol, attempt)
        )
        if fields.get("log", "none") != "none" and "logPrefix" not in fields:
            fields = {**fields, "logPrefix": self.service[:_LOG_PREFIX_MAX]}
        return fields, refused


def wishes(service: Service, families: Iterable[Family], mode: Mode = "snat") -> Wishes:
    """Read a Service's annotations and session affinity; ``families`` are those that it has addresses of.

    ``mode`` is that of a Service that asks for none.

    A refused value or an unknown key leaves the default in its place, and is a problem. An annotation wins over the
    session affinity, and ``sched-param`` over the parameter inside a scheduler such as ``hash-srcip``.
    """
    texts = annotation_options.annotations(service.metadata.annotations)
    affinity = {**_affinity(service), **({"mode": mode} if mode != "snat" else {})}
    if not texts:
        return Wishes(service.metadata.name, affinity, (), Listen(), ())
    problems = annotation_options.unknown(texts, KEYS, "Service")
    problems.extend(_unfold_schedulers(texts))
    listen = _listen(service, texts, problems)
    given, refused = annotation_options.parse(_OPTIONS.values(), texts)
    problems.extend(
        annotation_options.problem(option.key, f"{sentence}; {annotation_options.instead(option, affinity)}")
        for option, sentence in refused.items()
    )
    for option, value in given:
        if all(value.of(family) is None for family in families):
            problems.append(
                annotation_options.problem(
                    option.key, f"{annotation_options.shown(texts[option.key])!r} is of no family that the Service has"
                )
            )
    return Wishes(service.metadata.name, affinity, given, listen, tuple(problems))


def complaint(family: Family, protocol: str, fields: Fields, backends: tuple[Fields, ...] = ()) -> str | None:
    """What the model says against a farm with these fields; None where it takes them."""
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
        return annotation_options.complaint_of(error)
    return None


def _affinity(service: Service) -> Fields:
    """What a Service's own fields say of persistence."""
    config = service.spec.session_affinity_config
    timeout_s = config.client_ip.timeout_seconds if config is not None and config.client_ip is not None else None
    if service.spec.session_affinity == "ClientIP":
        return {"persistence": "srcip", "persistTTL": timeout_s or _CLIENT_IP_TIMEOUT_S}
    return {"persistTTL": timeout_s} if timeout_s else {}


def _unfold_schedulers(texts: dict[str, str]) -> list[Rejection]:
    """Put a scheduler under its key, and the fields inside it under theirs."""
    problems = []
    persistence = texts.get(_PERSISTENCE, "")
    if persistence in _SCHEDULERS or _hashed(persistence):
        del texts[_PERSISTENCE]
        sentence = f"{persistence!r} is a scheduler: write it under the key {_SCHEDULER}"
        if _SCHEDULER in texts:
            sentence += ", which says something else; it is left out"
        else:
            sentence += "; it is taken for that"
            texts[_SCHEDULER] = persistence
        problems.append(annotation_options.problem(_PERSISTENCE, sentence))
    if param := _hashed(texts.get(_SCHEDULER, "")):
        texts[_SCHEDULER] = "hash"
        texts.setdefault(_SCHED_PARAM, param)
    return problems


@lru_cache(maxsize=64)
def _hashed(scheduler: str) -> str:
    """The fields that one of the ancestor's schedulers hashes, such as srcip of hash-srcip; "" for any other."""
    if not scheduler.startswith(_HASH):
        return ""
    try:
        param = _OPTIONS[_SCHED_PARAM].parse(scheduler.removeprefix(_HASH))
    except annotation_options.InvalidValueError:
        return ""
    return param.ipv4 if param is not None and param.ipv4 != "none" else ""


def _listen(service: Service, texts: dict[str, str], problems: list[Rejection]) -> Listen:
    protocol, ports = texts.get(_PROTOCOL), texts.get(_PORTS)
    if protocol is None and ports is None:
        return Listen()
    if protocol not in (None, "all"):
        sentence = (
            f"{annotation_options.shown(protocol or '')!r} is not all; else the protocol is that of the Service's port"
        )
        problems.append(annotation_options.problem(_PROTOCOL, sentence))
        protocol = None
    if len(service.spec.ports) != 1:
        sentence = f"it is for a Service with one port, and this one has {len(service.spec.ports)}; it is left out"
        problems.extend(
            annotation_options.problem(key, sentence)
            for key, text in ((_PROTOCOL, protocol), (_PORTS, ports))
            if text is not None
        )
        return Listen()
    if protocol is not None:
        if ports is not None:
            problems.append(annotation_options.problem(_PORTS, "protocol all has every port already; it is left out"))
        return Listen(all_ports=True, keeps_port=True)
    if ports is None:
        return Listen()
    (port,) = service.spec.ports
    try:
        return Listen(ports=_ports(port.port, ports), keeps_port=_same_target(port))
    except ValueError as error:
        sentence = annotation_options.complaint_of(error) if isinstance(error, ValidationError) else str(error)
        problems.append(annotation_options.problem(_PORTS, f"{sentence}; port {port.port} alone is used"))
        return Listen()


def _ports(own: int, text: str) -> str:
    """The Service's own port and those of the text. Raises ValueError with a sentence."""
    more = ",".join(annotation_options.split(text))
    if annotation_options.shown(more) != more or not more:
        raise ValueError(f"{annotation_options.shown(more)!r} is not a list of 1 to 100 characters")
    return _PORTS_TYPE.validate_python(more if own in expand_ports(more) else f"{own},{more}")


def _same_target(port: ServicePort) -> bool:
    return port.target_port in (None, port.port)
