"""CustomResourceDefinitions and reference, generated from the models."""
