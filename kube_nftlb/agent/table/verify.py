"""Compare the agent table in the kernel with the desired state."""

import structlog

from kube_nftlb import errors
from kube_nftlb.agent.table.layout import TABLE
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.netfilter.nftables.contents import SetContents, TableContents, difference
from kube_nftlb.netfilter.readback import TableReader, confirmed

_log = structlog.get_logger()


class TableVerifier:
    """Compares rules, sets and elements by content, in the kernel's own form."""

    def __init__(self, table: AgentTable, reader: TableReader) -> None:
        self._table = table
        self._reader = reader
        self._wanted: tuple[int, TableContents] | None = None
        """What the kernel makes of the desired state, and the digest of that."""

    async def drift(self) -> str | None:
        """Return how the kernel deviates, or None. Elements that packets add do not count."""
        # First, as clients wait for a table that is gone.
        if self._table.seal not in (await self._reader.contents(TABLE, lambda _: False)).chains:
            return f"the table inet {TABLE} was deleted, or is of another state"
        try:
            wanted = await self._expected()
        except errors.KernelError as error:
            # Such as for lack of memory.
            _log.warning("cannot compare the agent table", error=str(error))
            return None
        return await confirmed(self._reader, lambda: self._compare(wanted))

    async def _compare(self, wanted: TableContents) -> str | None:
        if not (found := await self._reader.contents(TABLE, _all_sets)):
            return f"the table inet {TABLE} was deleted"
        drift = difference(wanted, found.condensed())
        return f"{drift} in the table inet {TABLE}" if drift is not None else None

    async def _expected(self) -> TableContents:
        digest = self._table.digest
        if self._wanted is None or self._wanted[0] != digest:
            contents = await self._table.blueprint(self._reader, _all_sets)
            self._wanted = digest, contents.condensed()
        return self._wanted[1]


def _all_sets(_: SetContents) -> bool:
    return True
