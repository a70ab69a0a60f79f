"""``kube-nftlb preflight``: what a cluster uses that kube-nftlb does differently, or not at all. Pure: no I/O."""
