"""The parts of Kubernetes' own objects that decisions depend on, as models."""
