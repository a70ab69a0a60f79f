"""A table that has the kernel translate established connections while all other tables are gone.

Without any nat chain, and any rule about connections, in a network namespace it stops, as after ``flush ruleset``: the
answers of pods would come from addresses that clients do not know, and each end would reset the connection. A table
that belongs to the agent's socket is nobody else's to delete. It goes with the process; the agent table has the same
chain for the time after that.
"""

import asyncio

import structlog

from kube_nftlb import errors
from kube_nftlb.netfilter.nftables import expressions, messages
from kube_nftlb.netfilter.nftables.expressions import State
from kube_nftlb.netfilter.nftables.messages import Hook
from kube_nftlb.netfilter.nftables.transaction import NftSocket, Transactions

TABLE = "kube-nftlb-keep-nat"
_PREROUTING = 0
_PRIORITY = 100
"""As in the agent table: only packets that nobody translates come as far."""
_RETRY_S = 10

_log = structlog.get_logger()


async def create(transactions: Transactions) -> None:
    """Create the table, which only these transactions can delete. Raises KernelError, as where another agent has it."""
    # Connections are tracked while any rule asks for their state.
    tracked = expressions.has_state(State.NEW)
    chain = messages.new_base_chain(TABLE, "keep-nat", Hook(_PREROUTING, _PRIORITY, "nat"), [tracked])
    await transactions.commit([messages.new_owned_table(TABLE), *chain])


async def run() -> None:
    """Have the table until cancelled. Raises OSError if there is no socket for it."""
    transactions = NftSocket.open()
    try:
        while True:
            try:
                await create(transactions)
                break
            except errors.KernelError as error:
                _log.warning("established connections would not outlive flush ruleset", error=str(error))
                await asyncio.sleep(_RETRY_S)
        await asyncio.Event().wait()
    finally:
        transactions.close()
