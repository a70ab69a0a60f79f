"""What an NftlbFarm lets its clients do at most."""

from collections.abc import Callable
from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, model_validator

from kube_nftlb.api import rules
from kube_nftlb.api.base import Annotation, Model
from kube_nftlb.api.rules import Rule
from kube_nftlb.api.values import RATE_PATTERN, RATE_SECONDS, LogPrefix, Rate, Verdict

Burst = Annotated[int, Field(ge=1, le=1000000)]

_BURST_S = 2**64 // 10**9
"""How long a whole burst may take at its rate: the kernel counts nanoseconds in 64 bits, and refuses more."""


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
    """Limits of a farm, each for one client address, and what happens where one is passed.

    Up to 65,536 client addresses per limit are told apart; the limit does not hold for those beyond.
    """

    model_config = ConfigDict(json_schema_extra=rules.schema(*LIMITS_RULES))

    new: Annotated[
        Rate | None,
        Annotation("new-rtlimit"),
        Field(
            description="New connections, such as 100/second; with UDP each packet counts until the first answer; "
            "absent: any number."
        ),
    ] = None
    new_burst: Annotated[
        Burst,
        Annotation("new-rtlimit-burst"),
        Field(description="How many new connections may come at once before that rate counts."),
    ] = 5
    new_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("new-rtlimit-log-prefix"),
        Field(description="What a line begins with that the kernel logs for a new connection above the rate."),
    ] = None
    reset: Annotated[
        Rate | None,
        Annotation("rst-rtlimit"),
        Field(description="TCP resets, such as 10/second; absent: any number."),
    ] = None
    reset_burst: Annotated[
        Burst,
        Annotation("rst-rtlimit-burst"),
        Field(description="How many TCP resets may come at once before that rate counts."),
    ] = 5
    reset_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("rst-rtlimit-log-prefix"),
        Field(description="What a line begins with that the kernel logs for a TCP reset above the rate."),
    ] = None
    established: Annotated[
        int | None,
        Annotation("est-connlimit"),
        Field(
            description="Connections at once, those that ended a few milliseconds ago included; absent: any number.",
            ge=1,
            le=1000000,
        ),
    ] = None
    established_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("est-connlimit-log-prefix"),
        Field(description="What a line begins with that the kernel logs for a connection above that number."),
    ] = None
    tcp_strict: Annotated[
        bool,
        Annotation("tcp-strict"),
        Field(
            description="Whether packets are dropped that belong to no connection and open none (conntrack's state "
            "invalid), such as a TCP packet with flags that no honest client sends."
        ),
    ] = False
    tcp_strict_log_prefix: Annotated[
        LogPrefix | None,
        Annotation("tcp-strict-log-prefix"),
        Field(description="What a line begins with that the kernel logs for such a packet."),
    ] = None
    forget_seconds: Annotated[
        int | None,
        Annotation("limits-ttl"),
        Field(
            description="Seconds of silence after which a client counts as a new one, with a whole burst, for the "
            "rates new and reset; absent: 120, or the time of the rate (a week for 5/week) where that is longer.",
            ge=1,
            le=604800,
        ),
    ] = None
    log_rate: Annotated[
        Rate | None,
        Annotation("log-rtlimit"),
        Field(description="How many lines each limit logs at most, such as 10/minute; absent: every one."),
    ] = None
    verdict: Annotated[
        Verdict,
        Annotation("verdict"),
        Field(description="What happens to a packet above a limit: it is logged, dropped, or both."),
    ] = "log drop"

    @model_validator(mode="after")
    def _check(self) -> Self:
        rules.check(LIMITS_RULES, self)
        return self
