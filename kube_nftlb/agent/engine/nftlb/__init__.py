"""The engine that programs nftlb over HTTP, and compares the kernel with what nftlb was sent."""
