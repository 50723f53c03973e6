"""Sweep."""
from pages.parts import shell

shell.start("Sweep")
