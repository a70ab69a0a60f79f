"""Announce addresses by BGP: a route for each in a kernel table that nothing else uses, which a routing daemon reads.

``routes`` decides which routes there are, and is pure; ``table`` has the kernel's; ``routing`` joins the two.
"""
