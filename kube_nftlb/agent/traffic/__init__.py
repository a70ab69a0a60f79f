"""The traffic of farms and backends, for Prometheus. It is counted by a process of its own, if it is switched on."""
