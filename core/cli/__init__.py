"""The command line: `python -m core COMMAND`. One module per command, each with `add_parser` and `execute`."""
from core.cli.main import main

__all__ = ["main"]
