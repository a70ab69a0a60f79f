"""Test traffic, generated inside a lab: ``python -m lab.traffic`` prints its results as JSON.

Uses only the standard library, to start quickly.
"""
