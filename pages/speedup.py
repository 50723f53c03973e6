"""Speedup."""
from pages.parts import shell

shell.start("Speedup")
