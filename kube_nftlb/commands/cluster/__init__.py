"""The commands that ask and steer a running cluster: ``kubectl nftlb status``, ``why``, ``get``, ``drain`` and others.

What they say is decided by pure functions over ``view.ClusterView``; most of the I/O is in ``queries``,
``on_nodes`` and ``terminal``.
"""
