"""Answer ARP and NDP for addresses that Services got from a pool, on the one node that holds each of them.

``wire`` is a process of its own that answers; ``ownership`` decides which node holds which address, and is pure.
"""
