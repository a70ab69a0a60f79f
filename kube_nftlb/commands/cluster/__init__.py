"""The commands that ask and steer a running cluster: ``kubectl nftlb status``, ``why``, ``get``, ``drain`` and others.

What they say is decided by pure functions over the objects; ``asking`` and ``terminal`` have the I/O.
"""
