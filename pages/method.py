"""Method: how it is measured and judged, from the one text that the repository has about it."""

from pathlib import Path

import streamlit as st

from pages.parts import shell

TEXT = Path(__file__).resolve().parent.parent / "docs" / "method.md"

shell.start("Method")
body = TEXT.read_text(encoding="utf-8").split("\n", 1)[1]  # the page has its own first heading
left, _ = st.columns([10, 2])
left.markdown(body)
