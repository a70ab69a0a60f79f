"""The addresses of pools as the agent table is to have them. Pure: no I/O."""

from collections.abc import Collection

from kube_nftlb.agent.table.base import pool_ranges
from kube_nftlb.api.address_ranges import AddressRange
from kube_nftlb.netfilter.table_text import Contents


class PoolRanges:
    """The addresses that only Services can have, until the kernel has them, and those that it refused."""

    def __init__(self) -> None:
        self.known = True
        """False from ``wait`` until the first ``set``."""
        self.pending = False
        """True until the agent table has the ``contents``."""
        self._wanted = Contents()
        self._instead: Contents | None = None
        self._again_at = float("inf")

    @property
    def contents(self) -> Contents:
        """What keeps packets to these addresses from going on without a Service."""
        return self._wanted if self._instead is None else self._instead

    def wait(self) -> None:
        """Expect to be told of them: without, the table of an earlier agent would be made anew."""
        self.known = False

    def set(self, ranges: Collection[AddressRange]) -> bool:
        """Set the addresses. Return whether that is news."""
        wanted = pool_ranges(ranges)
        if self.known and wanted == self._wanted:
            return False
        self.known = True
        self._wanted, self._instead, self.pending = wanted, None, True
        return True

    def refuse(self, instead: Contents, until: float) -> None:
        """Note that the kernel refused the contents, and what it has instead ``until``, in seconds of a clock."""
        if not self.pending:
            self._instead, self._again_at = instead, until

    def look_again(self, now: float) -> None:
        """Have contents tried again that the kernel refused, if that is due."""
        if self._instead is not None and now >= self._again_at:
            self._instead, self.pending = None, True
