"""What this project is measured by: ``python -m benchmarks``.

``records`` keeps what was measured, ``report`` makes docs/performance.md of it; the others measure one thing each.
"""
