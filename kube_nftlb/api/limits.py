"""Rate and connection limits of a farm."""

from collections.abc import Callable
from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, model_validator

from kube_nftlb.api import rules
from kube_nftlb.api.base import Annotation, Model
from kube_nftlb.api.rules import Rule
from kube_nftlb.api.values import RATE_PATTERN, RATE_SECONDS, LogPrefix, Rate, Verdict

Burst = Annotated[int, Field(ge=1, le=1000000)]

_BURST_S = 2**64 // 10**9
"""Seconds that a whole burst may take at its rate: the kernel counts nanoseconds in 64 bits, and refuses more."""


def _burst_rule(rate: str, burst: str, values: Callable[["Limits"], tuple[str | None, int]]) -> Rule["Limits"]:
    """Return the rule about a rate and its burst, given the names of both and how to get their values."""
    seconds = ", ".join(f"'{unit}': {seconds}" for unit, seconds in RATE_SECONDS.items())
    return Rule(
        f"{rate}-burst",
        f"!has(self.{rate}) || !self.{rate}.matches('{RATE_PATTERN}') || "
        f"{{{seconds}}}[self.{rate}.split('/')[1]] * self.{burst} <= int(self.{rate}.split('/')[0]) * {_BURST_S}",
        lambda limits: _burst_fits(*values(limits)),
        f"at this rate, a burst would take longer than 584 years, which the kernel cannot count: raise {rate} or lower "
        f"{burst}",
    )


def _burst_fits(rate: str | None, burst: int) -> bool:
    if rate is None:
        return True
    number, _, unit = rate.partition("/")
    return RATE_SECONDS[unit] * burst <= int(number) * _BURST_S


LIMITS_RULES: Final[tuple[Rule["Limits"], ...]] = (
    _burst_rule("new", "newBurst", lambda limits: (limits.new, limits.new_burst)),
    _burst_rule("reset", "resetBurst", lambda limits: (limits.reset, limits.reset_burst)),
)


class Limits(Model):
    """Limits per client address, and what happens to packets above them.

    Each limit tracks up to 65,535 client addresses, and does not apply to further ones.
    """

    model_config = ConfigDict(json_schema_extra=rules.schema(*LIMITS_RULES))

    new: Annotated[
        Rate | None,
        Annotation("new-rtlimit"),
        Field(
            description="Maximum rate of new connections, such as 100/second. With UDP, every packet counts until the "
            "first reply. Absent: unlimited."
        ),
    ] = None
    new_burst: Annotated[
        Burst,
        Annotation("new-rtlimit-burst"),
        Field(description="Number of new connections allowed in a burst above that rate."),
    ] = 5
    new_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("new-rtlimit-log-prefix"),
        Field(description="Log new connections above the rate, with this prefix."),
    ] = None
    reset: Annotated[
        Rate | None,
        Annotation("rst-rtlimit"),
        Field(description="Maximum rate of TCP resets, such as 10/second. Absent: unlimited."),
    ] = None
    reset_burst: Annotated[
        Burst,
        Annotation("rst-rtlimit-burst"),
        Field(description="Number of TCP resets allowed in a burst above that rate."),
    ] = 5
    reset_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("rst-rtlimit-log-prefix"),
        Field(description="Log TCP resets above the rate, with this prefix."),
    ] = None
    established: Annotated[
        int | None,
        Annotation("est-connlimit"),
        Field(
            description="Maximum number of concurrent connections. Connections count for a few milliseconds after they "
            "ended. Absent: unlimited.",
            ge=1,
            le=1000000,
        ),
    ] = None
    established_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("est-connlimit-log-prefix"),
        Field(description="Log connections above that number, with this prefix."),
    ] = None
    tcp_strict: Annotated[
        bool,
        Annotation("tcp-strict"),
        Field(
            description="Drop packets that neither belong to a connection nor open one (conntrack state invalid), such "
            "as TCP packets with bogus flags."
        ),
    ] = False
    tcp_strict_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("tcp-strict-log-prefix"),
        Field(description="Log such packets, with this prefix."),
    ] = None
    forget_seconds: Annotated[
        int | None,
        Annotation("limits-ttl"),
        Field(
            description="With new and reset: seconds without packets after which a client is forgotten, and may burst "
            "again. Default: 120, or the period of the rate if that is longer (a week for 5/week).",
            ge=1,
            le=604800,
        ),
    ] = None
    log_rate: Annotated[
        Rate | None,
        Annotation("log-rtlimit"),
        Field(description="Maximum rate of log lines per limit, such as 10/minute. Absent: unlimited."),
    ] = None
    verdict: Annotated[
        Verdict,
        Annotation("verdict"),
        Field(description="Action for packets above a limit: log, drop, or both."),
    ] = "log drop"

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules.check(LIMITS_RULES, self)
        return self
