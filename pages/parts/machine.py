"""The doctor's findings about this machine: asked once a server, in a process and a thread of their own."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import streamlit as st

from core.answers import doctor
from core.store.access import require_write
from pages.parts import access, shell, show, stored

START_AFTER_S = 4.0
"""The check loads torch: not while the first charts are drawn."""
WORDS = {"bad": "mend this", "warn": "look at this", "unknown": "could not be told", "ok": "fine"}


@dataclass
class Check:
    """`found` is None until the doctor has answered."""

    found: list[dict[str, Any]] | None = None
    thread: threading.Thread | None = field(default=None, repr=False)

    def begin(self, runs: str) -> None:
        def ask() -> None:
            time.sleep(START_AFTER_S)
            self.found = doctor.checks(runs=runs)

        self.thread = threading.Thread(target=ask, name="doctor", daemon=True)
        self.thread.start()


@st.cache_resource(max_entries=1, show_spinner=False)
def check() -> Check:
    started = Check()
    started.begin(str(stored.runs_folder().root))
    return started


def again() -> None:
    """Not for a visitor who may only look: each check is a process that loads torch."""
    if show.asked(require_write, "a new check") is not None:
        check.clear()


def checked() -> None:
    """One line, and folded in what was looked at; while the doctor is at work, so much. Draws nothing late."""
    asked = check()
    if asked.found is None:
        waiting()
        return
    found = sorted(asked.found, key=lambda line: doctor.STATUSES.index(line["status"]))
    worst = found[0]["status"] if found else "ok"
    words = doctor.headline(found)
    icon = ":material/info:" if worst in ("bad", "warn") else ":material/check:"
    with st.expander(words, icon=icon, key="doctor", on_change="rerun", type="compact") as box:
        if box.open:
            show.dataframe(
                pd.DataFrame(
                    [
                        {
                            "check": line["name"],
                            "is": WORDS[line["status"]],
                            "found": line["found"],
                            "why it matters": line["why"],
                            "what to do": line["fix"] if line["status"] != "ok" else "",
                        }
                        for line in found
                    ]
                ),
                alt=words,
            )
            st.button(
                "Check again",
                icon=":material/refresh:",
                on_click=again,
                disabled=access.locked(),
                key="doctor_again",
            )


@st.fragment(run_every=1.0)
@shell.guarded
def waiting() -> None:
    if check().found is not None:
        st.rerun()
    show.note("Looking at driver, torch, clocks and disk of this machine; the answer comes here.")
