"""Intervals of the loop."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals in seconds, and batches in farms."""

    verify_batch: int = 8
    verify_after_s: float = 0.05
    """Applied farms are verified after this time without changes: the next change goes first.

    Those with addresses that nodes announce are verified at once.
    """
    verify_within_s: float = 3
    """Applied farms are verified after this time at the latest."""
    poll_s: float = 0.25
    """The interval of checks for foreign transactions while there is nothing else to do."""
    maintain_every_s: float = 1
    """The maximum interval of these checks, and of the engine's maintenance."""
    put_off_s: float = 2
    """A comparison of all that farms share is put off for work for this time at most."""
    audit_every_s: float = 60
    """An audit of all farms starts this long after a change."""
    audit_batch: int = 4
    links_every_s: float = 5
    """The interval of reading the node's interfaces and pods while a farm depends on them."""
    retry_s: float = 0.2
    """The delay before a retry if the engine does not answer."""
    unexpected_s: float = 1
    """The delay after an unexpected error."""
    back_off_first_s: float = 1
    """The delay before a change that the engine or the kernel refused is retried; it doubles with each refusal."""
    back_off_s: float = 60
    """The maximum of that delay, and the delay before any other failed farm is retried, unless it changes."""
