"""Which card is meant: by the name a driver gives, and by the names people write.

A driver's name is matched case-sensitively against the patterns of the catalogue (ignoring case would join the desktop
"RTX 2070 SUPER" to the laptop "RTX 2070 Super"); memory size and SM count tell cards of one name apart.
A person's name goes through the aliases; where one spelling fits several cards, the catalogue's default wins and
the assumption is put into words.
"""
from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass

from core.errors import UserError
from core.gpus.catalogue import Gpu, catalogue, follows_catalogue

# What a driver reports lies below the nominal size (ECC takes 6 %, the driver a little), never far above it.
MEMORY_SHARE_RANGE = (0.82, 1.07)
# Variants whose bandwidth differs by more than this are named in the assumption.
_BANDWIDTH_CHANGE_WORTH_NAMING = 0.20

_LAPTOP_WORDS = frozenset({"laptop", "mobile", "notebook", "maxq"})
# Words with a digit that name no model: "80GB" or "SXM4" alone is no card.
_NOT_A_MODEL = re.compile(r"\d+gb|sxm\d|hbm\d\w*|pcie\d|gddr\d\w*")
_FILLER_WORDS = frozenset({"nvidia", "gpu", "gpus", "graphics", "card", "corporation", "the"})


@dataclass(frozen=True)
class Match:
    """A card as a person named it."""

    gpu: Gpu
    assumption: str | None  # what had to be assumed about the name, in one sentence
    alternatives: tuple[Gpu, ...]  # other cards that the same name fits
    count: int  # how many of them: "8x A100" is 8


def _memory_distance(gpu: Gpu, memory_bytes: int) -> float:
    """|log| of reported over nominal memory; infinite when the size cannot be this card's."""
    if gpu.memory_gb is None:
        return 0.0
    share = memory_bytes / 2**30 / gpu.memory_gb
    if not MEMORY_SHARE_RANGE[0] <= share <= MEMORY_SHARE_RANGE[1]:
        return math.inf
    return abs(math.log(share))


@follows_catalogue(1)
def _patterns() -> tuple[tuple[re.Pattern[str], Gpu], ...]:
    return tuple((re.compile(gpu.nvml_name_patterns), gpu) for gpu in catalogue().values() if gpu.nvml_name_patterns)


def cards_of_nvml_name(name: str) -> list[Gpu]:
    """Every card that a driver may call so."""
    return [gpu for pattern, gpu in _patterns() if pattern.fullmatch(name)]


def by_nvml_name(name: str, memory_bytes: int | None = None, sm_count: int | None = None) -> Gpu | None:
    """The catalogued card that a driver calls `name`, or None.

    None also when the memory or the SM count cannot be this card's (a MIG slice, a laptop part or a vGPU under the
    desktop name), and when several cards fit and nothing given tells them apart. Two cases only a PCI ID settles:
    laptop boards before Ampere and cloud gaming vGPUs carry desktop names; `Gpu.disambiguate` then lists the IDs.
    """
    candidates = cards_of_nvml_name(name)
    if sm_count is not None:
        candidates = [gpu for gpu in candidates if gpu.sm_count in (None, sm_count)]
    if memory_bytes is not None:
        by_distance = [(_memory_distance(gpu, memory_bytes), gpu) for gpu in candidates]
        nearest = min((distance for distance, _ in by_distance), default=math.inf)
        candidates = [gpu for distance, gpu in by_distance if distance == nearest < math.inf]
    return candidates[0] if len(candidates) == 1 else None


def by_catalogue_name(name: str) -> Gpu | None:
    """The card that the catalogue itself calls `name`, as an imported file's card is called once a person named it.

    None for a name that some driver gives: that one is for `by_nvml_name`, which knows when it cannot tell.
    """
    if cards_of_nvml_name(name):
        return None
    return next((gpu for gpu in catalogue().values() if gpu.name == name), None)


def _tokens(text: str) -> list[str]:
    """Words of a name in one spelling: lower case, "80 gb" and "80g" as "80gb", "2080ti" as "2080" "ti"."""
    text = text.lower().replace("max-q", "maxq")
    text = re.sub(r"(\d)\s*(?:gb|gib|g)\b", r"\1gb ", text)
    text = re.sub(r"\b(rtx|gtx|quadro|tesla|titan)(?=[a-z]?\d)", r"\1 ", text)
    text = re.sub(r"(\d{3,4})(ti|super)\b", r"\1 \2", text)
    words = re.split(r"[\s\-_/,()]+", text)
    return [word for word in words if word and word not in _FILLER_WORDS]


def _folded(text: str) -> str:
    return "".join(_tokens(text))


@follows_catalogue(1)
def _aliases() -> tuple[dict[str, list[Gpu]], dict[str, Gpu]]:
    """Folded spelling -> cards that carry it, and -> the card that it means by default."""
    carriers: dict[str, list[Gpu]] = {}
    default: dict[str, Gpu] = {}
    for gpu in catalogue().values():
        for alias in (*gpu.aliases, gpu.name, gpu.key or ""):
            cards = carriers.setdefault(_folded(alias), [])
            if gpu not in cards:
                cards.append(gpu)
        for alias in gpu.alias_default:
            default.setdefault(_folded(alias), gpu)
    return carriers, default


def aliases_of(name: str) -> list[Gpu]:
    """Cards of which one name is spelled like this one."""
    return _aliases()[0].get(_folded(name), [])


@follows_catalogue(1)
def _words_of_cards() -> tuple[tuple[frozenset[str], Gpu], ...]:
    """For each card every word that any of its names uses, its memory size included."""
    rows = []
    for gpu in catalogue().values():
        words = {word for alias in (*gpu.aliases, gpu.name, gpu.key or "") for word in _tokens(alias)}
        if gpu.memory_gb is not None:
            words.add(f"{gpu.memory_gb:g}gb")
        words |= {"sxm"} if any(word.startswith("sxm") for word in words) else set()
        rows.append((frozenset(words), gpu))
    return tuple(rows)


def _says_laptop(tokens: list[str]) -> bool:
    return bool(_LAPTOP_WORDS.intersection(tokens))


def _by_words(tokens: list[str]) -> list[Gpu]:
    """Cards whose names hold every word, in any order ("A100 80GB SXM4"); a desktop name never finds a laptop part."""
    if not any(re.search(r"\d", word) and not _NOT_A_MODEL.fullmatch(word) for word in tokens):
        return []
    cards = [gpu for words, gpu in _words_of_cards() if words.issuperset(tokens)]
    return cards if _says_laptop(tokens) else [gpu for gpu in cards if not gpu.is_laptop]


def _split_count(text: str) -> tuple[int, str]:
    """("8x A100" or "A100 x8") -> (8, "A100")."""
    before = re.fullmatch(r"(\d+)\s*[x×*]\s*(?=\D)(.+)", text, flags=re.IGNORECASE)
    if before:
        return int(before[1]), before[2].strip()
    after = re.fullmatch(r"(.+?)\s+[x×*]\s*(\d+)", text, flags=re.IGNORECASE)
    if after:
        return int(after[2]), after[1].strip()
    return 1, text


def _assumption(written: str, gpu: Gpu, alternatives: list[Gpu]) -> str | None:
    """What choosing `gpu` among several assumes; variants are named when the bandwidth moves by over 20 %."""
    sentence = f'"{written}" is read as {gpu.name}'
    if not alternatives:
        return f"{sentence}, a laptop part." if gpu.is_laptop and not _says_laptop(_tokens(written)) else None
    own = gpu.memory_bandwidth_gb_s
    if own is None:
        return f"{sentence}."
    far = [
        f"{other.name} ({other.memory_bandwidth_gb_s:g} GB/s)"
        for other in alternatives
        if other.memory_bandwidth_gb_s is not None
        and abs(other.memory_bandwidth_gb_s / own - 1) > _BANDWIDTH_CHANGE_WORTH_NAMING
    ]
    return f"{sentence} ({own:g} GB/s); it could also be {', '.join(far)}." if far else f"{sentence}."


def nearest_names(text: str, limit: int = 4) -> list[str]:
    """The names of catalogued cards that look most like `text`."""
    carriers, _ = _aliases()
    laptop = _says_laptop(_tokens(text))
    names: list[str] = []
    for folded in difflib.get_close_matches(_folded(text), list(carriers), n=limit * 6, cutoff=0.6):
        for gpu in carriers[folded]:
            if gpu.name not in names and gpu.is_laptop == laptop:
                names.append(gpu.name)
    return names[:limit]


def _candidates(name: str) -> list[Gpu]:
    """All cards that a name without a count may mean."""
    if name in catalogue():
        return [catalogue()[name]]
    tokens = _tokens(name)
    by_alias, by_nvml = _aliases()[0].get("".join(tokens), []), cards_of_nvml_name(name)
    # "NVIDIA T400" is what the 2 GB board's driver says; a person's "T400" means the 4 GB one.
    exact = by_nvml or by_alias if name.startswith("NVIDIA ") else by_alias or by_nvml
    cards = exact or _by_words(tokens)
    if _says_laptop(tokens):
        cards = [gpu for gpu in cards if gpu.is_laptop or "maxq" in _folded(gpu.name)]
    return cards


def _default_of(name: str, candidates: list[Gpu]) -> Gpu:
    """The catalogue's default for this spelling, else for the longest leading part of it that has one."""
    default = _aliases()[1]
    tokens = _tokens(name)
    leading = (default.get("".join(tokens[:length])) for length in range(len(tokens), 0, -1))
    return next((gpu for gpu in leading if gpu in candidates), candidates[0])


def by_human_name(text: str) -> Match:
    """The card that a person means: "T4", "RTX 3090", "A100 80GB", "2080 Ti", "8x A100", a driver's name, a key.

    A name that fits several cards takes the catalogue's default and says so in `assumption`. A laptop part needs a
    laptop word, and a laptop word never finds a desktop card.
    Raises UserError for an unknown name, with the nearest ones, and for a count of zero.
    """
    written = " ".join(text.split())
    count, name = (1, written) if _candidates(written) else _split_count(written)
    if count < 1:
        raise UserError(f'"{written}" counts no GPU', "one or more", "")
    if not name:
        raise UserError("no GPU name", 'a name such as "T4" or "A100 80GB"', "")
    candidates = _candidates(name)
    if not candidates:
        near = nearest_names(name)
        raise UserError(
            f'no GPU called "{name}" is known',
            f"one of {', '.join(near)}" if near else 'a name such as "T4", "RTX 3090" or "A100 80GB"',
            "python -m core specs lists all names",
        )
    chosen = _default_of(name, candidates)
    alternatives = [gpu for gpu in candidates if gpu is not chosen]
    return Match(chosen, _assumption(name, chosen, alternatives), tuple(alternatives), count)
