"""Test traffic, run inside a lab: ``python -m lab.traffic`` prints what happened as JSON.

The standard library only: it has to start quickly.
"""
