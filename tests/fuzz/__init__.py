"""Fuzzing of everything that reads text or bytes from outside: `python -m tests.fuzz --seconds 60`."""
