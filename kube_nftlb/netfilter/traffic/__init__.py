"""Count new connections, open connections and bytes by listener and backend, from the kernel's connection tracking."""
