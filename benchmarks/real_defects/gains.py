"""The second table of docs/log/real-defects.md: gains that threads published beside what we say.

``published`` in a program's ``truth.json`` holds what the thread says: ``before`` and ``after`` in
``unit`` (with ``rate`` more is better), of what (``of``), on what (``on``), and where it counts the
same things as we do (``counts``: ``waits`` or ``launches`` of a step), ``count_before`` and
``count_after``.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.real_defects.pairs import Pair, Side

TITLE = "## Published gains"

LARGE = 0.10
"""Share of the step from which a gain is called large. Ours: what a reader would change code for.
"""

WHOLE = frozenset({"step", "loop", "epoch", "run"})
"""What a step's share can be compared with. Other gains are those of a part (a save, an optimizer's
step), of which the thread does not say what it was of the whole."""

TEXT = """
Threads that state a time before and after (where they state only a ratio, one of the two is 100 %).
Where theirs counts waits of a step, ours stand beside it: `bad`, then `ok`. What we say is read
from the report of the rebuilt program: the price of the finding at the line as a share of its step.

The verdict is computed. A published gain is large from {large:.0%} of the step.
**right**: our price, with all of its interval, lies on the same side of {large:.0%}.
**wrong**: on the other side; or nothing was found, and the gain was large.
**open**: the interval holds {large:.0%}.
**no price**: no time is said (mostly because a wait costs what the GPU's queue holds, and there was
no GPU); then the severity alone speaks: *too loud* is an error or a warning where little was
gained, *too quiet* a note where much was.
**a part**: the thread timed a part of the step, whose share of the step is not public.

The programs are small and their sizes are mostly not the published ones, so a price is held to a
side of {large:.0%}, never to the published number. Each has one defect, so their order is no test.
The last column but one is a second truth: the mean step of the program and of its twin where they
were audited (a CPU of two busy cores), and the same rule.

"""

COLUMNS = (
    "thread",
    "published",
    "gained",
    "counts: theirs",
    "ours",
    "we say, at the line",
    "price",
    "step here",
    "verdict",
)


def section(pairs: Iterable[Pair]) -> str:
    """The section of the page, of those pairs whose thread published a gain."""
    stated = [each for each in pairs if "published" in each.truth]
    lines = [f"{TITLE}\n", TEXT.format(large=LARGE)]
    lines.append(_wrapped(f"{len(stated)} threads: {_counted(map(verdict, stated))}."))
    lines.append(_wrapped(f"Held to the twins here: {_counted(map(verdict_here, stated))}.") + "\n")
    lines.extend(_wrapped(f"- {said}") for each in stated for said in misled(each))
    rule = "|" + "---|" * len(COLUMNS)
    lines.append("\n| " + " | ".join(COLUMNS) + " |\n" + rule + "\n")
    lines.extend(row(each) for each in stated)
    return "".join(lines)


def _counted(verdicts: Iterable[str]) -> str:
    counts = Counter(filter(None, verdicts))
    return "; ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, subsequent_indent="  ", break_on_hyphens=False) + "\n"


def renewed(page: str, pairs: Iterable[Pair]) -> str:
    """The page with its section made anew, which is the last one, and the rest as it was."""
    rest = page.partition(TITLE)[0].rstrip("\n")
    return f"{rest}\n\n{section(pairs)}"


def gained(published: dict[str, Any]) -> float:
    """Share of the time (0 to 1) that came back; below 0 where the change cost time."""
    before, after = float(published["before"]), float(published["after"])
    return (after - before) / after if published.get("rate") else (before - after) / before


def price(side: Side, findings: Iterable[dict[str, Any]]) -> tuple[float, float] | None:
    """Interval of the largest price in time as shares of the step; None where none has one.

    An estimated price is a point.
    """
    return max(filter(None, (_share(side, each) for each in findings)), default=None)


def _share(side: Side, finding: dict[str, Any]) -> tuple[float, float] | None:
    if side.report is None:
        return None
    lost, low, high = (finding["lost_us_per_step" + end] for end in ("", "_low", "_high"))
    whole = _mean(side)
    if lost is None or not whole:
        return None
    low, high = (lost if end is None else end for end in (low, high))
    return max(0.0, low / whole), min(1.0, high / whole)


def verdict(pair: Pair) -> str:
    """What the page says of a pair, by the rule that it states."""
    published = pair.truth["published"]
    large = gained(published) >= LARGE
    if not pair.bad.judged:
        return "not audited yet"
    if not pair.found:
        return "wrong: not found" if large else "right: silent"
    if published["of"] not in WHOLE:
        return "a part"
    said = price(pair.bad, pair.found)
    if said is None:
        loud = any(each["severity"] != "note" for each in pair.found)
        return "no price" + ("" if loud == large else ", too loud" if loud else ", too quiet")
    return _held(said, large=large)


def _held(said: tuple[float, float], *, large: bool) -> str:
    low, high = said
    if low < LARGE <= high:
        return "open"
    return "right" if (low >= LARGE) == large else "wrong"


def gained_here(pair: Pair) -> float | None:
    """Share of the program's own mean step that the twin saves on the machine that audited both."""
    before, after = _mean(pair.bad), _mean(pair.ok)
    return (before - after) / before if before and after is not None else None


def verdict_here(pair: Pair) -> str:
    """The rule, held to the pair's own steps; empty without a price."""
    said, came = price(pair.bad, pair.found), gained_here(pair)
    if said is None or came is None:
        return ""
    return _held(said, large=came >= LARGE)


def _mean(side: Side) -> float | None:
    times = side.report["run"]["step_us"] if side.report is not None else None
    return (times["mean"] or times["median"]) if times else None


def _bases(pair: Pair) -> list[str]:
    """How the price that :func:`price` takes was come by."""
    said = price(pair.bad, pair.found)
    return sorted({one["basis"] for one in pair.found if said and _share(pair.bad, one) == said})


def misled(pair: Pair) -> Iterator[str]:
    """A sentence on each thing that would have misled a reader."""
    said = price(pair.bad, pair.found)
    priced = f"{_named(pair) or 'nothing'} " + (
        f"says {_interval(said)} of the step" if said else "stands"
    )
    what, here, came = verdict(pair), verdict_here(pair), gained_here(pair)
    if what.startswith("wrong") or "too" in what:
        gain = f"{gained(pair.truth['published']):.1%} of the {pair.truth['published']['of']}"
        yield f"`{pair.name}`, {what}: {priced} at the line, and {gain} came back."
    if here == "wrong" and came is not None:
        yield f"`{pair.name}`, wrong here: {priced}, and {came:.0%} came back in its own twin."


def count(side: Side) -> str:
    """Our count of the waits of a step, those of all findings about them; a dash where there is
    none.
    """
    if side.report is None:
        return "-"
    waits = (each["per_step"] for each in side.findings if each["code"].startswith("SYNC"))
    return f"{sum(waits):g}"


def row(pair: Pair) -> str:
    """One line of the table."""
    published = pair.truth["published"]
    what = published.get("counts")
    theirs = "-"
    if "count_before" in published:
        theirs = f"{published['count_before']} → {published['count_after']} {what}"
    on = f", {published['on']}" if "on" in published else ""
    cells = (
        f"[{pair.truth['title'].replace('|', chr(92) + '|')}]({pair.truth['link']}), `{pair.name}`",
        f"{published['before']:g} → {published['after']:g} {published['unit']}{on}",
        f"{gained(published):.1%} of the {published['of']}",
        theirs,
        f"{count(pair.bad)} → {count(pair.ok)} {what}" if what == "waits" else "-",
        (_named(pair) or "**nothing**") if pair.bad.judged else "-",
        _priced(pair),
        _here(pair),
        verdict(pair),
    )
    return "| " + " | ".join(cells) + " |\n"


def _named(pair: Pair) -> str:
    return ", ".join(dict.fromkeys(f"{one['code']} ({one['severity']})" for one in pair.found))


def _priced(pair: Pair) -> str:
    said = price(pair.bad, pair.found)
    return "-" if said is None else f"{_interval(said)}, {', '.join(_bases(pair))}"


def _here(pair: Pair) -> str:
    before, after, came = _mean(pair.bad), _mean(pair.ok), gained_here(pair)
    if before is None or after is None or came is None:
        return "-"
    held = verdict_here(pair)
    return f"{before / 1000:.1f} → {after / 1000:.1f} ms, {came:.0%}" + (
        f": {held}" if held else ""
    )


def _interval(shares: tuple[float, float]) -> str:
    low, high = shares
    if low == high:
        return f"{low:.1%}"
    return f"at least {low:.1%}" if high == 1.0 else f"{low:.0%} to {high:.0%}"
