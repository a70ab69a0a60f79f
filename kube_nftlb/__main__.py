"""Makes ``python -m kube_nftlb`` the same as the command ``kube-nftlb``."""

from kube_nftlb.cli import main

main()
