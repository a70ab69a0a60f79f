"""The engine of nftables maps: every listener and every endpoint is an element, and no Service has rules of its own."""
