"""The kernel: netlink, libnftables, conntrack and namespaces. Nothing here knows of Kubernetes or nftlb."""
