"""Whatever a file holds, it is read or refused: no crash, no half-stored line (benchmarks/fuzz.py does many more)."""
from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from builders import cell, header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import mutated, partial_rows

from core.records import Line, RecordError, decode_line, encode_line
from core.store import Store, queries, schema
from core.store.ingest import Ingester
from core.store.read_upload import look
from core.store.uploads import LIMITS

FILES = 15
LINES = [json.loads(encode_line(Line("20261130-100000-00000001", 3, record))) for record in (cell(), header("t4"))]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=8,
)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.integers(0, 2**64))
def test_mutated_files_are_read_alike_by_both_readers_and_stored_whole(seed: int) -> None:
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.jsonl" for number in range(FILES)]
        for path in paths:
            path.write_bytes(mutated(dice))
        seen = [look(str(path), LIMITS) for path in paths]
        connection = schema.connect_memory()
        with Store(connection) as store:
            ingester = Ingester(connection, files=paths)
            ingester.cycle()
            assert ingester.errors == {}
            assert partial_rows(store) == {}
            counts = store.frame(
                "select file, s.problems - coalesce(sum(r.conflicts), 0) as bad, "
                "coalesce(sum(r.lines + r.duplicates + r.conflicts), 0) as good from source s "
                "left join source_run r using (source) group by s.file, s.problems, s.torn"
            ).set_index("file")
            for path, found in zip(paths, seen, strict=True):
                if "refused" not in found:
                    assert counts.loc[path.name, "good"] == found["lines"], path.read_bytes()
                    torn = int(str(found["torn"]).startswith("the packed"))
                    assert counts.loc[path.name, "bad"] == found["bad_lines"] + torn, path.read_bytes()
            for question in (queries.cells, queries.runs, queries.problems, queries.quarantine, queries.waiting,
                             queries.ceilings, queries.unknown_lines, queries.sources):
                question(store)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.sampled_from(LINES), st.data())
def test_any_value_in_any_field_is_refused_or_comes_back_as_it_was(line: dict[str, Any], data: st.DataObject) -> None:
    body = json.loads(json.dumps(line))
    place: Any = body
    while True:
        key = data.draw(st.sampled_from(sorted(place))) if isinstance(place, dict) else data.draw(
            st.integers(0, len(place) - 1))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(JSON)
    try:
        read = decode_line(json.dumps(body).encode())
    except RecordError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert "\n" not in refused
        return
    assert decode_line(encode_line(read)) == read
