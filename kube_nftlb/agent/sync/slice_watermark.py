"""The watermark of this node for EndpointSlices. Pure: no I/O."""

from collections.abc import Container, Iterable

from kube_nftlb.api.conflicts import FarmKey


class SliceWatermark:
    """The resourceVersion up to which all changes of EndpointSlices are programmed, as far as farms refer to them.

    It is separate from the watermark of farms, because each kind has a watch of its own.
    """

    def __init__(self) -> None:
        self._waiting: dict[FarmKey, int] = {}
        self._seen = 0
        self.changed_at = 0
        """The latest resourceVersion at which a farm got other endpoints."""

    @property
    def pending(self) -> int:
        """The number of farms that were pending at the last ``update``, or changed since."""
        return len(self._waiting)

    def changed(self, keys: Iterable[FarmKey], version: int) -> None:
        """Note that farms got other endpoints at a resourceVersion."""
        for key in keys:
            self._waiting.setdefault(key, version)
            self.changed_at = max(self.changed_at, version)

    def seen(self, version: int) -> None:
        """Note how far the watch has come."""
        self._seen = max(self._seen, version)

    def update(self, pending: Container[FarmKey]) -> int:
        """Return the watermark, if all farms are programmed but those that are ``pending``."""
        self._waiting = {key: version for key, version in self._waiting.items() if key in pending}
        return max(min(self._waiting.values(), default=self._seen + 1) - 1, 0)
