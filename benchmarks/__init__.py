"""What this project is measured by: ``python -m benchmarks``.

``records`` keeps what was measured, ``report`` makes docs/performance.md of it, the other modules measure one thing each.
"""
