"""The parts of Gateway API's objects that we read. Users install their CustomResourceDefinitions; we define none."""
