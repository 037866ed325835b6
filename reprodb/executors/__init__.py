"""Executors: run artifacts and return the bits of every repetition."""
