"""What a Service's annotations and session affinity ask of its farms."""

from typing import Final, NamedTuple, TypeVar, get_args

from kube_nftlb import names
from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.service import Service
from kube_nftlb.api.values import FIELD_SETS, Mode, Scheduler
from kube_nftlb.operator.problems import Problem

_T = TypeVar("_T")

_SHOWN_VALUE_MAX = 100

_CLIENT_IP_TIMEOUT_S = 10800
"""What the Service API says of sessionAffinity ClientIP without a timeout."""


class Options(NamedTuple):
    """The fields of a FarmSpec that a Service decides about; the defaults are FarmSpec's."""

    mode: Mode = FarmSpec.model_fields["mode"].default
    scheduler: Scheduler = FarmSpec.model_fields["scheduler"].default
    sched_param: str = FarmSpec.model_fields["sched_param"].default
    persistence: str = FarmSpec.model_fields["persistence"].default
    persist_ttl: int = FarmSpec.model_fields["persist_ttl"].default


_MODES: Final[dict[str, Mode]] = {mode: mode for mode in get_args(Mode)}
_SCHEDULERS: Final[dict[str, tuple[Scheduler, str]]] = {
    **{scheduler: (scheduler, "none") for scheduler in get_args(Scheduler)},
    # What the project's ancestor called them.
    "hash-srcip": ("hash", "srcip"),
    "hash-srcip-srcport": ("hash", "srcip srcport"),
}
_FIELD_SETS: Final[dict[str, str]] = {
    **{fields: fields for fields in FIELD_SETS},
    **{fields.replace(" ", "-"): fields for fields in FIELD_SETS},
}
_KEYS = ("mode", "scheduler", "sched-param", "persistence")


class Wishes(NamedTuple):
    """What a Service asks for, per family, and what of it was refused."""

    ipv4: Options
    ipv6: Options
    problems: tuple[Problem, ...]

    def of(self, family: Family) -> Options:
        """The options of the farms of one family."""
        return self.ipv6 if family == "ipv6" else self.ipv4


def wishes(service: Service, families: tuple[Family, ...], default_mode: Mode = "snat") -> Wishes:
    """Read a Service's annotations and session affinity, for the families that it has addresses of.

    A refused value, an unknown key or an impossible combination leaves the default in its place, and is a problem.
    An annotation ``sched-param`` wins over the one inside a scheduler such as ``hash-srcip``.
    """
    problems: list[Problem] = []
    given = {
        key.removeprefix(names.ANNOTATION_PREFIX): value.strip()
        for key, value in sorted(service.metadata.annotations.items())
        if key.startswith(names.ANNOTATION_PREFIX)
    }
    for key in given:
        if key not in _KEYS:
            known = ", ".join(_KEYS)
            problems.append(_refused(f"unknown; the annotations of kube-nftlb are: {known}", key))

    default_persistence, ttl = _affinity(service)
    mode = _pick(given, "mode", _MODES, problems) or default_mode
    scheduler, sched_param = _pick(given, "scheduler", _SCHEDULERS, problems) or (Options().scheduler, "none")
    if (param := _pick(given, "sched-param", _FIELD_SETS, problems)) is not None:
        if param != "none" and scheduler != "hash":
            problems.append(
                _refused(f"{param!r} needs the scheduler hash, not {scheduler}; it is left out", "sched-param")
            )
        else:
            sched_param = param
    persistence = _pick(given, "persistence", _FIELD_SETS, problems)
    if persistence is not None and " " in persistence and scheduler not in ("hash", "symhash"):
        sentence = (
            f"{persistence!r} needs the scheduler hash or symhash, not {scheduler}; {default_persistence} is used"
        )
        problems.append(_refused(sentence, "persistence"))
        persistence = None

    ipv4 = Options(mode, scheduler, sched_param, persistence or default_persistence, ttl)
    ipv6 = ipv4
    if persistence is not None and " " in persistence and "ipv6" in families:
        ipv6 = ipv4._replace(persistence=default_persistence)
        sentence = f"{persistence!r} is for IPv4; the IPv6 farms use {default_persistence}"
        problems.append(_refused(sentence, "persistence"))
    return Wishes(ipv4, ipv6, tuple(problems))


def _affinity(service: Service) -> tuple[str, int]:
    """The persistence without an annotation, and the seconds that any persistence lasts."""
    config = service.spec.session_affinity_config
    timeout_s = config.client_ip.timeout_seconds if config is not None and config.client_ip is not None else None
    if service.spec.session_affinity == "ClientIP":
        return "srcip", timeout_s or _CLIENT_IP_TIMEOUT_S
    return Options().persistence, timeout_s or Options().persist_ttl


def _pick(given: dict[str, str], key: str, allowed: dict[str, _T], problems: list[Problem]) -> _T | None:
    if key not in given:
        return None
    value = given[key]
    if value not in allowed:
        choice = ", ".join(repr(each) if " " in each else each for each in allowed)
        problems.append(_refused(f"{_shown(value)!r} is not one of: {choice}; the default is used", key))
    return allowed.get(value)


def _refused(sentence: str, key: str) -> Problem:
    return Problem("InvalidAnnotation", f"{names.ANNOTATION_PREFIX}{_shown(key)}: {sentence}")


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_VALUE_MAX else f"{text[:_SHOWN_VALUE_MAX]}..."
