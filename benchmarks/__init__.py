"""The benchmarks: ``python -m benchmarks``.

``records`` stores measurements, ``report`` turns them into docs/performance.md; each scenario is a module of its own.
"""
