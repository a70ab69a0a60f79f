"""nftlb: its HTTP API and how it lays out nftables. Nothing here knows of Kubernetes.

``objects``, ``requests`` and ``layout`` are pure; ``client`` talks to the daemon, ``readback`` reads what it has built.
"""
