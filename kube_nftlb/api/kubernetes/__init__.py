"""Models of Kubernetes' own objects, with the parts that we read."""
