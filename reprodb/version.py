"""The version of reprodb, alone in its file so that reading it imports nothing."""

__version__ = "0.1.0"
