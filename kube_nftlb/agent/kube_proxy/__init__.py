"""kube-proxy on this node: whether it runs, what rules it left, their removal, and how a node goes back to it."""
