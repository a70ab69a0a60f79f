"""The kernel's connection tracking table, over netlink: its entries, filters of them, and what is done with them.

By hand upon ``netlink``: pyroute2's reader makes Python objects of everything in an entry, and cannot have the kernel
filter by listener and mark.
"""
