"""How one run stands against the shipped run of the same work, with the pages that say more."""

from pages.parts import choose, show, stored


def next_steps(run_id: str) -> None:
    """One sentence and two links; nothing for a shipped run, and for one whose work no shipped run did."""
    runs = stored.runs()
    label = runs.loc[(runs["run_id"] == run_id) & (runs["source"] != "reference"), "gpu_label"]
    found = stored.twin(run_id) if len(label) else None
    if found is None:
        return
    show.note(found["headline"])
    sides = {
        "baseline": choose.run_name(found["run_id"], found["gpu"]),
        "target": choose.run_name(run_id, label.iloc[0]),
        "baseline_precision": choose.SAME,
        "target_precision": choose.SAME,
    }
    show.page_link("Gap", "Explain it against its shipped twin", sides)
    show.page_link("Speedup", "See it beside the other devices", {"origin": "measured"})
