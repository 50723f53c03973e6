"""Method: how it is measured and judged, from the one text that the repository has about it."""

import re

import streamlit as st

from core.answers.terms import METHOD
from pages.parts import shell, show

shell.start("Method")
body = METHOD.read_text(encoding="utf-8").split("\n", 1)[1]  # the page has its own first heading
headings = re.findall(r"^## (.+)$", body, flags=re.MULTILINE)
show.sentence(
    "A forward pass is timed from a synchronised device to a synchronised device; a ratio is baseline time over target "
    "time of the same work, and it is judged against what data sheets and healthy operations allow."
)
text, contents = st.columns([9, 3], gap="large")
with contents.container(border=True):
    st.markdown("\n".join(f"- [{name}](#{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')})" for name in headings))
text.markdown(body)
