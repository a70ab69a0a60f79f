"""Follow the packets of one flow through nftables, in a table that goes with the socket that made it."""
