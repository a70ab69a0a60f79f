"""The agent: one per node, it brings the node's nftlb to what the farms say.

Farms -> ``view`` -> ``plan`` -> nftlb. ``marks``, ``view``, ``plan`` and ``report`` are pure. ``engine`` changes nftlb
and reads the kernel, ``own_table`` is the agent's own nftables, ``conntrack`` the kernel's connections, ``reconcile``
the loop; ``watch`` and ``status`` talk to the API server.
"""
