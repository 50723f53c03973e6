"""Frozen records of a run, their checks, the run file and the runs folder. Standard library only."""
from core.records.convert import Line, RecordError, from_json, line_from_json, line_to_json, to_json, valid_run_id
from core.records.model import (
    FOREIGN,
    LINE_KINDS,
    METHOD,
    ORIGINS,
    PRECISIONS,
    REST_OP,
    SCHEMA,
    STATUSES,
    Ceiling,
    Cell,
    Device,
    End,
    Host,
    Note,
    Op,
    OpTrial,
    RunHeader,
    SettingKey,
    Software,
    Stage,
    Telemetry,
    Unknown,
    WorkKey,
    Workload,
    uuid_hash,
)
from core.records.run_file import (
    Parsed,
    RunFile,
    RunWriter,
    cut_torn_tail,
    decode_line,
    encode_line,
    new_run_id,
    now_utc,
    open_run_file,
    parse_lines,
    read_run_file,
)
from core.records.runs_folder import Runner, RunsFolder, device_lock, last_line, process_started

__all__ = [
    "FOREIGN", "LINE_KINDS", "METHOD", "ORIGINS", "PRECISIONS", "REST_OP", "SCHEMA", "STATUSES",
    "Ceiling", "Cell", "Device", "End", "Host", "Line", "Note", "Op", "OpTrial", "Parsed", "RecordError", "RunFile",
    "RunHeader", "RunWriter", "Runner", "RunsFolder", "SettingKey", "Software", "Stage", "Telemetry", "Unknown",
    "WorkKey", "Workload",
    "cut_torn_tail", "decode_line", "device_lock", "encode_line", "from_json", "last_line", "line_from_json",
    "line_to_json", "new_run_id", "now_utc", "open_run_file", "parse_lines", "process_started", "read_run_file",
    "to_json", "uuid_hash", "valid_run_id",
]
