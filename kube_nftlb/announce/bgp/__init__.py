"""Announce addresses by BGP: a route for each in a kernel table that nothing else uses, which a routing daemon reads.

``routes`` decides which routes there are, ``earlier_routes`` has those of an earlier agent, and both are pure;
``table`` has the kernel's; ``routing`` joins them.
"""
