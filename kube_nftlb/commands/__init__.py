"""Commands of ``kube-nftlb`` that use more than one of the programs' parts, or only show something."""
