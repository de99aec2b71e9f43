"""Secrets in what a recording keeps: found by detect-secrets' detectors and by names, and masked
before anything is written.

A recording and its report are passed on. Configuration files with a secret are left out of it;
sources, the target's output, its error and its command line are kept with the secret masked.
A mask has as many bytes as what it covers, so that lines and columns stay.
"""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MASK = b"*"
ARGUMENT_MASK = "***"
"""What stands for the value of a command line argument."""

TEXT = ".txt"
"""Suffix of words that are no file of settings: output, errors, arguments."""

SHORTEST = 6
"""Characters of an argument's secret that is looked for in words: shorter ones are words."""

LONGEST_LINE = 2000
"""Bytes of a line that a detector sees at once; a longer one is split into pieces that overlap."""

OVERLAP = 256
"""Bytes that two pieces of a long line share: as long as most keys."""

NOT_ASKED = frozenset(
    {
        "Public IP (ipv4)",  # no secret
        # checksums and names of runs look random, too: asked of values with a telling name
        "Base64 High Entropy String",
        "Hex High Entropy String",
        # knows no `token`, and takes `api_key = args.api_key` for one: NAMES in its place
        "Secret Keyword",
        "Private Key",  # finds the line above the key: _PEM in its place
    }
)
"""Detectors of detect-secrets that are not asked of every line, each with its reason."""

NAMES = re.compile(
    r"(?:^|[_.-])(?:secret|passw(?:or)?d|passphrase)$"
    r"|(?:api|access|account|private|secret|service|auth|client|cli|ssh|db|wandb|hf|license)[_-]?key$"
    r"|(?:^|_)(?:secret|password|passwd)(?:_|$)|webhook",
    re.IGNORECASE,
)
"""Names of settings, arguments and variables whose value is a secret."""

WEAK_NAMES = re.compile(r"(?:^|[_.-])(?:token|pass|pwd|credentials?|bearer)$", re.IGNORECASE)
"""Names that say it only with a value that no word is: ``"pass": "forward"`` does not."""

KEY_NAMES = re.compile(r"(?:^|[_.-])(?:key|auth|login)$", re.IGNORECASE)
"""Names that say it only with a value that looks random: ``sort_key: length`` does not."""

VOCABULARY = re.compile(
    r"(?:^|[_.-])(?:pad|bos|eos|unk|sep|cls|mask|image|special|added|stop|start|end|additional)_token$",
    re.IGNORECASE,
)
"""Tokens of a tokenizer."""

_HARMLESS = re.compile(
    r"|none|null|true|false|yes|no|auto|-?[\d.]+(?:e-?\d+)?|\$.*|<.*>|\[.*\]|\{.*\}|\*+|your[-_ ].*|x+|\.\.\."
    r"|(?-i:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)|%.*|.*\s.*",
    re.IGNORECASE | re.DOTALL,
)
"""Values without a secret: numbers, flags, references, places to fill in, names, prose."""

_RANDOM = re.compile(r"[A-Za-z0-9+/=_-]{20,}")
_PLACEHOLDER = re.compile(rb"[A-Z]{2,12}")
"""What a usage message shows for a value: ``--token TOKEN``."""
_NAME = re.compile(r"[a-z]+(?:_[a-z0-9]+)+")
_WORDLESS = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{6,}")
_ASSIGNED = re.compile(
    rb"(?P<start>^[ \t]*(?:export[ \t]+|set[ \t]+)?)?(?<![\w.-])(?P<name>[A-Za-z_][\w.-]{0,63})"
    rb"(?P<given>[ \t]*[=:][ \t]*)[\"']?(?=(?P<value>[^\s\"'`#;&,()]+))",
    re.MULTILINE,  # a value is looked at again, as a name: ``failed: TOKEN=...``
)
_LITERAL = re.compile(
    rb"\"\"\".*?(?:\"\"\"|\Z)|\'\'\'.*?(?:\'\'\'|\Z)"
    rb"|\"(?:\\.|[^\"\\\n])*\"|\'(?:\\.|[^\'\\\n])*\'|\#[^\n]*",
    re.DOTALL,
)
"""Strings and comments of Python."""

_FLAG = re.compile(
    rb"(?<![\w-])--?(?P<name>[A-Za-z][\w-]{0,63})[ =][\"']?(?P<value>[^\s\"'`,;()-][^\s\"'`,;()]*)"
)
_QUOTED = re.compile(
    rb"(?i)\b([\w.-]{0,64}?(?:key|token|secret|pass|pwd|credential|auth|bearer|webhook|login)\w{0,32})"
    rb"(?:[\"'][\])]*[ \t]*(?:[=:,]|=>)|[ \t]*(?:=|:|=>|\())[ \t]*[rbu]?([\"'])([^\"'\n]+)\2"
)
"""A telling name (a variable, a quoted key, a function) and the string that it is given."""

_PEM = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(.{0,16384}?)(?:-----END|\Z)", re.DOTALL
)
_KNOWN = re.compile(
    rb"/(?:api/webhooks|services)/[\w-]{9,}/[\w/-]{20,}|(?<![\w-])(?:sig=[\w%+/-]{32,}=*"
    rb"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"
    rb"|(?:AGE-SECRET-KEY-1|AIza|AKIA|ASIA|GOCSPX-|PMAK-|SG\.|api_org_|dapi|dckr_pat_|dop_v1_|dp\.pt\.|fo1_"
    rb"|gh[oprsu]_|github_pat_|glc_|gl[dpr]at-|gldt-|glrt-|glsa_|gsk_|hf_|hvs\.|lin_api_|lsv2_[ps][tk]_|npm_"
    rb"|nvapi-|ops_ey|pcsk_|pplx-|pypi-AgE|r8_|rk_live_|rubygems_|sbp_|shpat_|sk-|sk_live_|sk_test_|sntrys_"
    rb"|sq0atp-|tskey-|xapp-|xox[abp]-|ya29\.)(?=[\w.-]*[0-9]|[A-Za-z]{16})[\w.-]{12,})"
)
"""Keys of services that training programs use and whose prefix gives them away, whatever they are
called; JSON web tokens; signatures of Azure's links; addresses of webhooks.
"""

_HEADER = re.compile(
    rb"\b(?:[Bb]earer|[Bb]asic|Authorization[\"']?:[ \t]*[\"']?\w+|[Pp]assword|wandb[ \t]+login|wandb:(?:[ \t]*key:?)?)"
    rb"[ \t]+(?=[\w.~+/=-]*[0-9])([\w.~+/=-]{16,})"
    rb"|\b(?:Set-)?Cookie[\"']?:[ \t]*[\"']?(\w+=[^\r\n\"'{<]{8,})"
    rb"|\bcurl\b[^\r\n]{0,512}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,64}:([^\s\"'$]+)"
)
"""What a header of HTTP or a command to log in is given: ``Authorization: Bearer ...``."""


@dataclass(frozen=True)
class Masked:
    """One masked secret: the line (from 1) and what kind of secret a detector took it for."""

    line: int
    kind: str


@functools.lru_cache(4096)
def redacted(raw: bytes, suffix: str = ".py") -> tuple[bytes, tuple[Masked, ...]]:
    """The bytes with each secret masked, and what was. ``suffix``: how the file assigns values."""
    spans = sorted(set(_spans(raw, suffix)))
    if not spans:
        return raw, ()
    text = bytearray(raw)
    found: dict[int, Masked] = {}
    for start, end, kind in spans:
        for place in range(start, end):
            if text[place] not in b"\r\n":
                text[place : place + 1] = MASK
        line = raw.count(b"\n", 0, start) + 1
        found.setdefault(line, Masked(line, kind))
    return bytes(text), tuple(found.values())


def redacted_text(text: str, known: Iterable[str] = ()) -> str:
    """Words of the target's (output, an error), secrets masked; ``known``: seen elsewhere."""
    for secret in known:
        if len(secret) >= SHORTEST:
            text = text.replace(secret, ARGUMENT_MASK)
    raw = text.encode("utf-8", "surrogateescape")
    return redacted(raw, TEXT)[0].decode("utf-8", "surrogateescape")


def holds_secret(
    raw: bytes, suffix: str, values: Iterable[tuple[Sequence[str | int], Any]]
) -> bool:
    """True if a configuration file shows a secret: in its text, or ``values`` (path, value)."""
    if next(_spans(raw, suffix), None) is not None:
        return True
    return any(
        isinstance(value, str) and path and is_secret(str(path[-1]), value, strict=True)
        for path, value in values
    )


def is_secret(name: str, value: str, *, strict: bool = False) -> bool:
    """True if a setting of this name holds a secret, rather than a word, a number or a reference.

    ``strict`` is for settings and arguments, of which one too many may be masked: a ``token`` is
    one whatever it looks like.
    """
    value = value.strip()
    if _HARMLESS.fullmatch(value) or VOCABULARY.search(name):
        return False
    if NAMES.search(name):
        return True
    if WEAK_NAMES.search(name):
        return strict or looks_random(value) or _WORDLESS.fullmatch(value) is not None
    return KEY_NAMES.search(name) is not None and looks_random(value)


def looks_random(value: str) -> bool:
    """True if a string's entropy is that of a key, by detect-secrets' limits for hex and base64."""
    if not _RANDOM.fullmatch(value):
        return False
    return any(
        set(value) <= set(detector.charset)
        and detector.calculate_shannon_entropy(value) > detector.entropy_limit
        for detector in _entropy_detectors()
    )


def redacted_arguments(
    arguments: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """A command line to show; names (``--token``, ``argument 3``) and values that were masked."""
    shown, names, values = [], [], []
    for number, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        before = arguments[number - 1] if number else ""
        if equals and is_secret(name.lstrip("-"), value, strict=True):
            shown.append(f"{name}={ARGUMENT_MASK}")
            names.append(name)
            values.append(value)
        elif (
            before.startswith("-")
            and "=" not in before
            and not word.startswith("-")
            and is_secret(before.lstrip("-"), word, strict=True)
        ):
            shown.append(ARGUMENT_MASK)
            names.append(before)
            values.append(word)
        elif next(_spans(word.encode("utf-8", "surrogateescape"), TEXT), None) is not None:
            shown.append(
                f"{name}={ARGUMENT_MASK}" if equals and name.startswith("-") else ARGUMENT_MASK
            )
            names.append(name if equals and name.startswith("-") else f"argument {number + 1}")
            values.append(value if equals and name.startswith("-") else word)
        else:
            shown.append(word)
    return tuple(shown), tuple(names), tuple(values)


def restored(recorded: bytes, live: bytes, suffix: str = ".py") -> bytes:
    """A recorded file with its masked lines as they stand in the user's own file, wherever those
    lines are by now.

    Lines that are masked alike (two secrets of one length) are taken in their order, where all of
    them are still there. A line that is not there any more stays masked, so that the file counts as
    changed.
    """
    masked, found = redacted(live, suffix)
    if not found:
        return recorded
    now: dict[bytes, list[bytes]] = {}
    for hidden, shown in zip(masked.split(b"\n"), live.split(b"\n"), strict=True):
        now.setdefault(hidden, []).append(shown)
    lines = recorded.split(b"\n")
    often = Counter(lines)
    theirs = {
        line: iter(there if len(there) == often[line] else _all_alike(there, line))
        for line, there in now.items()
    }
    return b"\n".join(next(theirs[line]) if line in theirs else line for line in lines)


def _all_alike(there: Sequence[bytes], masked: bytes) -> Iterator[bytes]:
    return itertools.repeat(there[0] if len({*there}) == 1 else masked)


# -- finding ---------------------------------------------------------------------------------------

Span = tuple[int, int, str]

_WORD = re.compile(rb"[^\s\"'(),;<>\[\]{}]{20,2000}")
"""Some detectors know a key only if nothing else is in its line."""
_KEYLIKE = re.compile(r"[\w+/=.-]{10,}")
"""What a detector takes for a key has a digit, or :data:`LONGEST_WORD` characters (Cloudant's
passwords have 24 letters); but for an address, ``://user:password@``."""
LONGEST_WORD = 24
_DIGIT = re.compile(r"[0-9]")


def _spans(raw: bytes, suffix: str) -> Iterator[Span]:
    for match in _PEM.finditer(raw):
        yield match.start(1), match.end(1), "Private Key"
    for match in _KNOWN.finditer(raw):
        yield match.start(), match.end(), "Access Token"
    for match in _HEADER.finditer(raw):
        yield *match.span(match.lastindex or 0), "Access Token"
    for match in _QUOTED.finditer(raw):
        name, value = _text(match[1]).rpartition(".")[2], _text(match[3])
        if is_secret(name, value) or (not VOCABULARY.search(name) and looks_random(value)):
            yield match.start(3), match.end(3), "Secret Keyword"
    for match in _given(raw, suffix):
        yield *match.span("value"), "Secret Keyword"
    yield from _detected([piece for piece in _pieces(raw) if _may_hold_key(piece[1])])
    words = [(word.start(), _text(word[0])) for word in _WORD.finditer(raw)]
    yield from _detected([(start, word) for start, word in words if _DIGIT.search(word)])


def _may_hold_key(line: str) -> bool:
    return "://" in line or any(
        len(word) >= LONGEST_WORD or _DIGIT.search(word) for word in _KEYLIKE.findall(line)
    )


def _given(raw: bytes, suffix: str) -> Iterator[re.Match[bytes]]:
    """``NAME=value``, ``name: value`` and ``--name value`` with a secret; in Python those in strings
    and comments, since there what is assigned without quotes is another name.
    """
    matches = [
        *(each for each in _ASSIGNED.finditer(raw) if _holds(each, suffix)),
        *(
            each
            for each in _FLAG.finditer(raw)
            if not _PLACEHOLDER.fullmatch(each["value"])
            and is_secret(_text(each["name"]), _text(each["value"]), strict=_is_settings(suffix))
        ),
    ]
    if suffix == ".py" and matches:
        literals = iter([each.span() for each in _LITERAL.finditer(raw)])
        start, end = next(literals, (len(raw), len(raw)))
        for match in sorted(matches, key=lambda match: match.start("value")):
            while end <= match.start("value"):
                start, end = next(literals, (len(raw), len(raw)))
                if start == len(raw):
                    return
            if start < match.start("name"):
                yield match
    else:
        yield from matches


def _is_settings(suffix: str) -> bool:
    return suffix not in (TEXT, ".py")


def _holds(match: re.Match[bytes], suffix: str) -> bool:
    """Whether what was assigned is a secret. Outside ``KEY=value`` a word is none."""
    name, value = _text(match["name"]), _text(match["value"])
    begins = match["start"] is not None and suffix != ".py"
    if not is_secret(name, value, strict=begins and _is_settings(suffix)):
        return False
    return (
        begins
        or match["given"] == b"="
        or (_WORDLESS.fullmatch(value) is not None and not _NAME.fullmatch(value))
        or looks_random(value)
    )


def _detected(pieces: Sequence[tuple[int, str]]) -> Iterator[Span]:
    """What detect-secrets' detectors of keys with a shape of their own find, piece by piece."""
    text = "\n".join(piece for _, piece in pieces)
    asked = [
        detector
        for detector in _detectors()
        if any(shape.search(text) for shape in detector.shapes)
    ]
    for start, piece in pieces if asked else ():
        for detector in asked:
            for secret in detector.find(piece):
                at = piece.find(secret)
                while secret and at >= 0:
                    yield start + at, start + at + len(secret), detector.kind
                    at = piece.find(secret, at + len(secret))


def _pieces(raw: bytes) -> Iterator[tuple[int, str]]:
    """Lines, long ones in pieces, each with its offset. Latin-1 makes each byte one character."""
    start = 0
    for line in raw.split(b"\n"):
        if not line.isspace():
            for offset in range(0, max(len(line), 1), LONGEST_LINE - OVERLAP):
                yield start + offset, line[offset : offset + LONGEST_LINE].decode("latin-1")
        start += len(line) + 1


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")


@dataclass(frozen=True)
class Detector:
    """A detector of detect-secrets. ``shapes``: whether a text is worth asking line by line."""

    kind: str
    find: Callable[[str], Iterable[str]]
    shapes: tuple[re.Pattern[str], ...]


@functools.cache
def _detectors() -> tuple[Detector, ...]:
    """All but :data:`NOT_ASKED`; ``analyze_line``, which may ask a service, is not called."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    plugins: dict[str, Any] = dict(get_mapping_from_secret_type_to_class())
    made = {kind: plugin() for kind, plugin in sorted(plugins.items()) if kind not in NOT_ASKED}
    return tuple(
        Detector(
            kind,
            plugin.analyze_string,
            tuple(re.compile(p.pattern, p.flags | re.MULTILINE) for p in plugin.denylist),
        )
        for kind, plugin in made.items()
    )


@functools.cache
def _entropy_detectors() -> tuple[Any, ...]:
    from detect_secrets.plugins.high_entropy_strings import (
        Base64HighEntropyString,
        HexHighEntropyString,
    )

    return HexHighEntropyString(), Base64HighEntropyString()
