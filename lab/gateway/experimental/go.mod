// The CustomResourceDefinition of Gateways of the Gateway API's experimental channel, pinned by go.sum.
module kube-nftlb.io/lab/gateway/experimental

go 1.26.0

require sigs.k8s.io/gateway-api v1.7.0
