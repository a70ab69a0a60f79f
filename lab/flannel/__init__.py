"""Flannel, which connects the nodes of a lab that asks for it: built from its Go module, and run on each node."""
