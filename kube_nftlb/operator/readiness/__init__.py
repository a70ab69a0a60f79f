"""The readiness gate of Pods: they become ready once the nodes that count have programmed them (KEP-580)."""
