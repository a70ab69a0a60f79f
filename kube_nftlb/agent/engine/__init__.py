"""The engines: each brings one data plane of the node to what the farms say."""
