// Flannel, pinned by go.sum. Its own go.sum pins what it needs.
module kube-nftlb.io/lab/flannel

go 1.26.0

require github.com/flannel-io/flannel v0.28.10
