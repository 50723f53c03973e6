"""Files of other programs, read into ordinary run-file lines.

A format is recognised by its content. What a file does not say, its reader asks (`model.Interview`); once nothing is
open, what it read becomes lines of origin `imported` (`lines`), which take the one way in. Runs in the limited child of
core.store.read_upload: standard library, core.records and core.gpus; pyarrow and duckdb only for their own files.
"""
