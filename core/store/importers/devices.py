"""Which device a foreign file means: names with vendors, counts and brackets, engineering names, a CPU."""
from __future__ import annotations

import re

from core.errors import UserError
from core.gpus import by_human_name, by_nvml_name
from core.gpus.lookup import nearest_names
from core.store.importers.model import Board, Interview, Reading, RefusedError

ENGINEERING_NAMES = {
    "A100-PG509-200": "A100 SXM4 40GB", "A100-PG509-210": "A100 SXM4 80GB", "A100-PG506-200": "A100 SXM4 40GB",
    "Tesla V100-DGXS-16GB": "Tesla V100 SXM2 16GB", "Tesla V100-DGXS-32GB": "Tesla V100 SXM2 32GB",
}
"""Names of boards that are in no price list -> the card that is nearest to them; offered, never taken silently.

PG509 is the part number of the SXM4 board (facebookresearch/HolisticTraceAnalysis, traces of an A100 with 40 GB);
V100-DGXS is the DGX Station's board with the SXM2 chip's SMs and memory.
"""

_COUNT = re.compile(r"^\s*(\d{1,3})\s*[x×*]\s*(?=\D)|\s+[x×*]\s*(\d{1,3})\s*$", re.IGNORECASE)
_CLOUD = re.compile(r"^(?:cuda\s*-\s*|lambda\s*cloud\s+|aws\s+|gcp\s+|azure\s+)", re.IGNORECASE)
_CPU = re.compile(r"cpu(?:\s*[:-]\s*(.+))?", re.IGNORECASE)


def split_count(name: str) -> tuple[int, str]:
    """`LambdaCloud 4x V100 16GB` as (4, "V100 16GB"); who rents it out and how torch calls it is left out."""
    name = _CLOUD.sub("", name.strip())
    found = _COUNT.search(name)
    if found is None:
        return 1, name
    return int(found[1] or found[2]), _CLOUD.sub("", (name[:found.start()] + name[found.end():]).strip())


def card_name(name: str, memory_bytes: int | None = None) -> tuple[str | None, str | None]:
    """(the name under which the catalogue finds the card, what had to be assumed); (None, None) for an unknown one."""
    if by_nvml_name(name, memory_bytes) is not None:
        return name, None
    try:
        match = by_human_name(name)
    except UserError:
        return None, None
    return match.gpu.name, match.assumption


def ask_board(
    interview: Interview, reading: Reading, stated: str | None, *, memory_bytes: int | None = None,
    sm_count: int | None = None, compute_capability: str | None = None, cpu_name: str | None = None,
) -> Board | None:
    """The device; None while nobody has named it. `stated`: what the file calls it; `cpu_name`: of its host.

    Adds to `reading.said` how a name was read.
    """
    answer = interview.said("gpu")
    if answer is None and stated:
        count, name = split_count(stated)
        if _CPU.fullmatch(name):
            return _cpu(name, cpu_name)
        known, assumption = card_name(name, memory_bytes)
        if known is not None:
            if assumption:
                reading.said.append(assumption)
            return Board(known, count=count, memory_bytes=memory_bytes, sm_count=sm_count,
                         compute_capability=compute_capability)
        bare = name.removeprefix("NVIDIA ").strip()
        near = ENGINEERING_NAMES.get(bare)
        if near is not None:
            question = f"The file calls its card {name}, an engineering name. Which card is it?"
            answer = interview.ask("gpu", question, (near, name), near, free=True)
        else:
            answer = interview.ask("gpu", f"The file calls its device {name}, which no catalogue has. Which is it?",
                                   (name,), name, free=True)
        if answer == name:
            return Board(name, count=count, memory_bytes=memory_bytes, sm_count=sm_count,
                         compute_capability=compute_capability)
    elif answer is None:
        shown = f" Its host has the CPU {cpu_name}." if cpu_name else ""
        answer = interview.ask("gpu", "Which device do these figures come from? A GPU by its name, or cpu." + shown,
                               free=True)
    if answer is None:
        return None
    return _named(answer, reading, cpu_name)


def _cpu(answer: str, cpu_name: str | None) -> Board:
    found = _CPU.fullmatch(answer)
    return Board((found[1] if found else None) or cpu_name or "CPU, not named", is_cpu=True)


def _named(answer: str, reading: Reading, cpu_name: str | None) -> Board:
    """The device as a person named it. A card that the catalogue lacks keeps the name it was given."""
    if _CPU.fullmatch(answer):
        return _cpu(answer, cpu_name)
    count, name = split_count(answer)
    if not name or count < 1:
        raise RefusedError(f"the answer gpu={answer[:60]}", 'a name such as "T4" or "A100 80GB", or cpu')
    known, assumption = card_name(name)
    if known is None:
        near = nearest_names(name)
        if near and name.lower() in {word.lower() for word in near}:
            known = near[0]
        else:
            hint = f"; it is not {near[0]}, if that was meant" if near else ""
            reading.said.append(f"No card in the catalogue is called {name}{hint}.")
    if assumption:
        reading.said.append(assumption)
    return Board(known or name, count=count)


PRECISION_WORDS = {
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "f16": "fp16", "torch.float16": "fp16", "amp": "fp16",
    "bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16", "tf32": "tf32", "fp64": "fp64", "float64": "fp64",
    "double": "fp64", "torch.float64": "fp64", "int8": "int8", "fp8": "fp8", "int4": "int4",
}
FLOAT_WORDS = ("fp32", "float32", "float", "single", "full", "f32", "torch.float32", "torch.float")
PRECISION_CHOICES = ("fp32", "default", "tf32", "fp16", "bf16", "fp64", "fp8", "int8")
_FLOAT_MEANS = (
    "fp32: FP32 with TF32 off; default: torch as it comes, TF32 where the card has it and torch uses it; tf32: TF32 on"
)


def ask_precision(interview: Interview, stated: str | None) -> str | None:
    """The precision; a word that says only "float32" leaves open what the arithmetic did, so it is asked."""
    answer = interview.said("precision")
    word = (stated or "").strip().lower()
    if answer is not None:
        if answer.lower() not in PRECISION_CHOICES:
            raise RefusedError(f"the answer precision={answer[:60]}", "one of " + ", ".join(PRECISION_CHOICES))
        if word not in PRECISION_WORDS:
            return answer.lower()
    if word in PRECISION_WORDS:
        return PRECISION_WORDS[word]
    if word in FLOAT_WORDS:
        return interview.ask("precision", f"The file says {stated}: what did the arithmetic do? {_FLOAT_MEANS}.",
                             ("default", "fp32", "tf32"), "default")
    said = f"The file says {stated}, which says nothing of it. " if stated else ""
    return interview.ask("precision", f"{said}In which precision did it run? {_FLOAT_MEANS}.", PRECISION_CHOICES)
