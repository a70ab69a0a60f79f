"""The CustomResourceDefinitions of the Gateway API, for labs that are to have them."""
