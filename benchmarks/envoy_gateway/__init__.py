"""Envoy Gateway, which serves TCPRoutes with Envoy, a proxy: a peer for benchmarks, built only on demand."""
