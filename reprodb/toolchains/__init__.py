"""Compilers: find them, install them, turn profiles into options, compile."""
