"""Packages of tests on labs."""
