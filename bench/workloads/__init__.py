"""The benchmarks; each module registers its own."""

from kittens.bench.workloads import host

__all__ = ["host"]
