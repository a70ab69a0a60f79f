"""Announce addresses that Services got from a pool: by ARP and NDP on the one node that holds each, or by routes.

``wire`` is a process of its own that answers; ``ownership`` decides which node holds which address, and is pure;
``bgp`` writes routes for a routing daemon.
"""
