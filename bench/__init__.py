"""Benchmarks: jianmu beside its peers, both measured in one run, each row against a bar."""
