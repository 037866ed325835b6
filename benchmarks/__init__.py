"""Benchmarks: each a ratio against a peer, measured in the same run, with its spread."""
