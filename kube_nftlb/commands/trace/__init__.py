"""``kube-nftlb trace``: what happens to a connection on a node, and why."""
