"""``kube-nftlb check --before``: what a cluster uses that kube-nftlb does differently, or not at all."""
