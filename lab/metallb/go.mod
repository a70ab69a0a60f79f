// MetalLB, pinned by go.sum. Its own go.sum pins what it needs.
module kube-nftlb.io/lab/metallb

go 1.26.0

require go.universe.tf/metallb v0.16.1
