// Envoy Gateway, pinned by go.sum. Its own go.sum pins what it needs.
module kube-nftlb.io/benchmarks/envoy-gateway

go 1.26.0

require github.com/envoyproxy/gateway v1.9.1
