"""What is generated from the models: the CustomResourceDefinitions, and rows for the reference."""
