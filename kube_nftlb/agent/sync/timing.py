"""How often the loop does what."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals in seconds, and batches in farms."""

    verify_batch: int = 8
    verify_after_s: float = 0.05
    """How long nothing must have changed before what was applied is verified: the next change goes first."""
    verify_within_s: float = 3
    """What was applied is verified after this time at the latest."""
    poll_s: float = 0.25
    """How often the kernel is asked whether anybody has changed nftables, while there is nothing else to do."""
    maintain_every_s: float = 1
    """How often that is done at the least, and how often the engine maintains itself."""
    audit_every_s: float = 60
    """How long after a change of nftables every farm has been compared once more."""
    audit_batch: int = 4
    links_every_s: float = 5
    """How often the node's interfaces and pods are read while a farm depends on them."""
    retry_s: float = 0.2
    """How long the loop waits if the engine does not answer."""
    unexpected_s: float = 1
    """How long it waits after an error that nobody thought of."""
    back_off_s: float = 60
    """How long a farm that the engine or the kernel refused is left alone, unless it changes."""
