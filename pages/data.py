"""Data."""
from pages.parts import shell

shell.start("Data")
