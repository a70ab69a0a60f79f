"""Announce the load balancer addresses that this node serves: facts for ``kube_nftlb.announce``, which decides.

The facts are those of the loop: what it has planned, and what it has verified in the kernel.
"""
