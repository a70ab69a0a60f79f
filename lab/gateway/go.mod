// The CustomResourceDefinitions of the Gateway API, pinned by go.sum.
module kube-nftlb.io/lab/gateway

go 1.26.0

require sigs.k8s.io/gateway-api v1.6.3
