"""What a name on the command line means, in the words of kubectl. Pure: no I/O."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from kube_nftlb import errors
from kube_nftlb.commands.cluster import named

Kind = Literal["", "service", "farm"]

_KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("svc", "service", "services"), "service"),
    **dict.fromkeys(("farm", "farms", "nftlbfarm", "nftlbfarms"), "farm"),
}


class Asked(NamedTuple):
    """What a user asks for."""

    kind: Kind
    """Empty: whichever there is."""
    namespace: str
    name: str
    word: str = ""
    """How the user calls the kind, which may be a namespace that is called so."""

    @property
    def hint(self) -> str:
        """What to say where there is none: what else may be meant."""
        return f"; for the namespace {self.word} say {self.name} -n {self.word}" if self.word else ""


def asked(text: str, option: str | None, namespace: str) -> Asked:
    """Return what ``NAME``, ``NAMESPACE/NAME`` or ``KIND/NAME`` means; ``namespace`` is that of a name without one.

    Raises UsageError if it cannot be a name, or the option ``--namespace`` says something else.
    """
    before, name = named.split(text)
    if before is not None and before in _KINDS and before != option:
        return Asked(_KINDS[before], namespace, name, before)
    if before and option and before != option:
        raise errors.UsageError(f"{text!r} is in the namespace {before}, but --namespace says {option}")
    return Asked("", before or namespace, name)
