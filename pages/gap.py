"""Gap."""
from pages.parts import shell

shell.start("Gap")
