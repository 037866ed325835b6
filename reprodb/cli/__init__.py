"""The command line: parse, call, print, exit. Errors are caught once, here."""

from reprodb.cli.app import main

__all__ = ["main"]
