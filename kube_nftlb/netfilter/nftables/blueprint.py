"""What the kernel makes of a table as we write it: what a table is compared with, and made like."""

from collections.abc import Awaitable, Callable

from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.nftables.contents import SetContents, TableContents
from kube_nftlb.netfilter.nftables.reading import ContentsReader


def blueprint_of(table: str) -> str:
    """Return the name of the table that is there for the moment in which a blueprint of another one is read."""
    return f"{table}-check"


class Blueprint:
    """Writes a table that is dormant, so that no packet passes it, reads it, and deletes it."""

    def __init__(self, nft: Nftables, reader: ContentsReader, table: str) -> None:
        self._nft = nft
        self._reader = reader
        self.table = blueprint_of(table)
        """The name to write it by."""

    async def read(
        self,
        commands: str,
        with_elements: Callable[[SetContents], bool],
        add: Callable[[], Awaitable[None]] | None = None,
    ) -> TableContents:
        """Return what the kernel has of the table that these commands create, once ``add`` has added to it."""
        try:
            await self._nft.run(commands)
            if add is not None:
                await add()
            return await self._reader.contents(self.table, with_elements)
        finally:
            await self._nft.run(f"table inet {self.table} {{}}\ndelete table inet {self.table}\n")
