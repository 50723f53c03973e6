"""results.duckdb: a cache of reference data, run files and journal; the questions asked of it; uploads and sweeps."""
from core.store.lock import Holder, LockHeldError, holder_of
from core.store.store import AppStore, Status, Store, database_path, open_app, open_files, open_reading, reference_root

__all__ = [
    "AppStore", "Holder", "LockHeldError", "Status", "Store", "database_path", "holder_of", "open_app", "open_files",
    "open_reading", "reference_root",
]
