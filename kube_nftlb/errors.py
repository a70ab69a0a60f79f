"""Every error that kube-nftlb raises on purpose.

::

    KubeNftlbError
    ├── UsageError            a command was called with something it cannot take
    ├── KubeError             the API server answered, and refused
    │   ├── NotFoundError       404
    │   ├── ConflictError       409
    │   └── ExpiredError        410: the resourceVersion is too old, list again
    ├── KubeUnreachableError  the API server did not answer
    ├── LeaseLostError        another replica may lead now
    ├── NftlbError            nftlb answered, and refused
    ├── EngineUnreachableError  what an engine programs is away
    │   └── NftlbUnreachableError nftlb did not answer
    ├── KernelError           libnftables or netlink refused
    ├── UnhealthyError        one of our own programs is not well
    └── LabError              the lab cannot do what it was asked

Errors that end in ``UnreachableError`` are worth a retry; the others will come back until something is changed.
"""


class KubeNftlbError(Exception):
    """The root: catching it catches everything below."""


class UsageError(KubeNftlbError):
    """A command was called with something it cannot take; the message says what it takes."""


class KubeError(KubeNftlbError):
    """The API server refused a request; ``status`` is the HTTP status, ``reason`` the Status object's reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class NotFoundError(KubeError):
    """404: no such object, or no such resource."""


class ConflictError(KubeError):
    """409: the object exists already, or it changed since it was read."""


class ExpiredError(KubeError):
    """410: the resourceVersion is too old to watch from."""


class KubeUnreachableError(KubeNftlbError):
    """The API server could not be reached, or broke off."""


class LeaseLostError(KubeNftlbError):
    """This replica leads no more; the message says why. What it was about to write must not be written."""


class NftlbError(KubeNftlbError):
    """nftlb refused a request; ``status`` is the HTTP status, or 200 where the body told of an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"nftlb answered {status}: {message}")
        self.status = status


class EngineUnreachableError(KubeNftlbError):
    """What an engine programs could not be reached."""


class NftlbUnreachableError(EngineUnreachableError):
    """nftlb could not be reached, broke off, or did not answer in time."""


class KernelError(KubeNftlbError):
    """The kernel, or libnftables on its behalf, refused a request."""


class UnhealthyError(KubeNftlbError):
    """The operator or the agent does not answer that it is alive."""


class LabError(KubeNftlbError):
    """The lab cannot do what it was asked; the message says what is missing."""
