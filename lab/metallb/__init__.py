"""MetalLB beside kube-proxy, for comparisons: built from its Go module, and run with the rights of its own manifest."""
