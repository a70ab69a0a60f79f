"""The Node that the agent runs on: its own object, addresses, ranges and DaemonSet."""
