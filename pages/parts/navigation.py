"""The one list of pages: navigation, tests and the page headings read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class PageInfo:
    section: str
    name: str
    icon: str  # a Material symbol from Streamlit's own font
    question: str
    shows_data: bool = True  # drawn again when stored data change; the Sweep page follows its run itself

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name.lower()}.py"

    @property
    def url_path(self) -> str:
        return self.name.lower()


PAGES = (
    PageInfo(
        "Results", "Overview", ":material/dashboard:", "Which part of a gap is normal, and what is measured here?"
    ),
    PageInfo("Results", "Speedup", ":material/bar_chart:", "How do GPU types compare on the same work?"),
    PageInfo(
        "Results", "Gap", ":material/compare_arrows:", "Does the measured gap match theory, and where does the time go?"
    ),
    PageInfo(
        "Results", "Predict", ":material/online_prediction:", "What would it take on a GPU or precision I don't have?"
    ),
    PageInfo(
        "Measure",
        "Sweep",
        ":material/play_circle:",
        "What do precision, resolution, frames and points cost on this machine?",
        shows_data=False,
    ),
    PageInfo("Measure", "Data", ":material/database:", "Which runs are here, and what does a file from elsewhere add?"),
    PageInfo(
        "Review", "Review", ":material/forum:", "What is open, what was decided, and what has changed since?"
    ),
    PageInfo(
        "Reference",
        "GPUs",
        ":material/memory:",
        "What can each card do on paper, what does it reach, and where does the work stand?",
    ),
    PageInfo(
        "Reference",
        "Method",
        ":material/menu_book:",
        "What is timed, what is not, and how is a verdict reached?",
        shows_data=False,
    ),
)


def page_info(name: str) -> PageInfo:
    return next(page for page in PAGES if page.name == name)
