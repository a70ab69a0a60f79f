"""nftables over netlink: expressions, messages and transactions, as bytes.

Written by hand: libnftables reads chains, sets and maps back before each change, and libnftnl takes a call for every
attribute of every element. Names and numbers are those of linux/netfilter/nf_tables.h.
"""
