"""As whom requests are made, if not as the one who logs in: impersonation, as kubectl asks for it. Pure: no I/O."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import quote

_IN_NAMES = "!#$&'*+^`|"
"""What names of headers may have, beside letters, digits and what ``quote`` leaves anyway."""


class Impersonation(NamedTuple):
    """A user to impersonate; without a name nobody is."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    """Keys and values; keys may repeat."""

    @classmethod
    def of(cls, user: Mapping[str, Any]) -> Self:
        """Return what a user of a kubeconfig says. Raises TypeError if something is no list that should be one."""
        extra = user.get("as-user-extra") or {}
        pairs = tuple((str(key), value) for key, values in extra.items() for value in _listed(values))
        return cls(str(user.get("as") or ""), str(user.get("as-uid") or ""), _listed(user.get("as-groups")), pairs)

    def over(self, other: "Impersonation") -> "Impersonation":
        """Return this, with what only the other one says."""
        return Impersonation(
            self.user or other.user, self.uid or other.uid, self.groups or other.groups, self.extra or other.extra
        )

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers of requests, of which some may repeat. Raises ValueError if they cannot say it."""
        if not self.user:
            if any(self):
                raise ValueError("a uid, groups or extra fields are impersonated with a user only")
            return []
        found = [("Impersonate-User", self.user), *([("Impersonate-Uid", self.uid)] if self.uid else [])]
        found += [("Impersonate-Group", group) for group in self.groups]
        found += [(f"Impersonate-Extra-{quote(key, _IN_NAMES)}", value) for key, value in self.extra]
        if odd := [value for _, value in found if not value.isprintable()]:
            raise ValueError(f"nobody can be impersonated as {odd[0]!r}")
        return found


NOBODY = Impersonation()


def _listed(values: list[Any] | None) -> tuple[str, ...]:
    if not isinstance(values, list | None):
        raise TypeError
    return tuple(map(str, values or ()))
