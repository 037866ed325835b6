"""Renderers: they walk values and compute nothing."""
