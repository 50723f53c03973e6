"""Gapscope: why is this GPU N times slower at point tracking? Start with `streamlit run app.py`."""

from pages.parts import shell

shell.main()
