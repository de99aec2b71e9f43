"""What two runs showed, in words and as JSON (docs/reproduce.md has its schema)."""

import json
import time
from collections.abc import Sequence
from typing import Any

from auditor import amounts
from auditor.cli import console, progress_display
from auditor.cli.usage import EXIT_FOUND
from auditor.extensions.reproduce.comparing import (
    SEEDS,
    Difference,
    aside,
    drawn_otherwise,
    seeded_otherwise,
    source_of,
    ulps,
)
from auditor.extensions.reproduce.runs import Order, Outcome, Runs
from auditor.model import Site
from auditor.runs.plan import Device
from auditor.runs.repeat import VALUES

SCHEMA = "audit-reproduce/1"

MORE = 3
"""Further lines at which two versions part, at most."""

NAMED = {
    "torch": "torch's generator",
    "random": "Python's random",
    "numpy": "NumPy's generator",
    "clock": "the time",
    "system": "what the operating system gives",
    "hash": "the hash seed of strings",
}

REMEDIES = {
    "torch": "call torch.manual_seed(...) before",
    "random": "call random.seed(...) before",
    "numpy": "call numpy.random.seed(...) before, and give default_rng(...) a seed",
    "clock": "let no result depend on the time",
    "system": "give the generator a seed, and let no result depend on os.urandom() or uuid4()",
    "hash": "sort what a set or hash() orders, or set PYTHONHASHSEED",
}

NONDETERMINISTIC = frozenset(
    """
    adaptive_avg_pool2d_backward avg_pool3d_backward adaptive_avg_pool3d_backward
    adaptive_max_pool2d_backward fractional_max_pool2d_backward fractional_max_pool3d_backward
    max_unpool2d max_unpool3d max_pool3d_with_indices_backward upsample_linear1d_backward
    upsample_bilinear2d_backward upsample_bicubic2d_backward upsample_trilinear3d_backward
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward
    replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
    nll_loss2d_forward _ctc_loss_backward put_ histc bincount median grid_sampler_2d_backward
    grid_sampler_3d_backward cumsum scatter_add_ scatter_add index_add_ index_add scatter_reduce_
    scatter_reduce index_put_ index_copy_ index_copy
    """.split()
)
"""Of torch's own list for CUDA (``torch.use_deterministic_algorithms``), under the names that run."""


def lines(outcome: Outcome) -> list[str]:
    """The verdict first."""
    found = outcome.found
    if found is None:
        many = f"{len(outcome.one.operators):,} operators"
        steps = "the first step" if outcome.steps == 1 else f"the first {outcome.steps} steps"
        runs = f"as in {outcome.against}" if outcome.against else "in both runs"
        return [
            f"alike: {steps} gave the same losses and weights {runs} ({many} compared)",
            *_notes(outcome),
        ]
    why = _why_versions_differ if outcome.against else _why
    return [
        _where(outcome, found),
        *(f"  {each}" for each in why(outcome, found)),
        *_notes(outcome),
    ]


def _placed(site: Site | None) -> str:
    return "no line of yours" if site is None else f"{site.file}:{site.line} ({site.text})"


def _where(outcome: Outcome, found: Difference) -> str:
    first, row, place = outcome.first_step, found.operator, _placed(found.site)
    if row is None:
        return f"differs: the {found.outcome.name} at {place}, and no operator that was seen leads to it"
    what = "a batch" if row.name == "DataLoader" else row.name
    alone = "runs in one of the runs alone" if found.twin is None else "gives another result"
    gave = f"gives a result that no operator has in {outcome.against}" if outcome.against else alone
    when = f"before step {first}" if row.pass_name == "warmup" else f"in step {row.step + first}"
    return f"differs: {place}: {what} {gave} {when}"


def _why_versions_differ(outcome: Outcome, found: Difference) -> list[str]:
    twin = found.twin
    others = {_placed(row.site): None for row in found.more if row.site != found.site}
    also = [f"with equal inputs, this line differs, too: {each}" for each in list(others)[:MORE]]
    there = (
        "" if twin is None else f"in {outcome.against} the first such line is {_placed(twin.site)}"
    )
    checked = f"(checked: {outcome.runs} runs)"
    held = f"each version repeats itself with generators, hash seed and clock held {checked}"
    return [*also, *([there] if there else []), held]


def _why(outcome: Outcome, found: Difference) -> list[str]:
    causes, row, twin = outcome.causes, found.operator, found.twin
    checked = f"(checked: {outcome.runs} runs)"
    if len(causes) == 1:
        (cause,) = causes
        given = _given_seeds(outcome)
        generator, why = cause in SEEDS, NAMED[cause]
        if generator and not given:
            why += (
                ", which is drawn from before it has its seed"
                if any(row.name in SEEDS[cause] and row.value for row in outcome.one.sources)
                else ", which has no seed"
            )
        source, blamed = _blame(outcome, found)
        if source is not None and source != found.site and not (generator and given):
            why += f", at {source.file}:{source.line} ({source.text})"
        if given:
            why += f": {given}"
        agree = (
            "with that held, both runs agree here"
            if outcome.kept is not None
            else "two runs agree, and a run with another clock does not"
        )
        return [
            f"because of {why}; {agree} {checked}",
            *_look_at(blamed),
            f"remedy: {REMEDIES[cause]}",
        ]
    if causes:
        named = ", ".join(NAMED[each] for each in causes)
        return [
            f"because of several causes together: {named}; with all of them held, both runs agree {checked}"
        ]
    said = [
        f"the runs differ even with generators, hash seed, clock and operating system held {checked}"
    ]
    drawn = drawn_otherwise(outcome.one, outcome.other, found)
    if drawn is not None and drawn.generator == "own":
        which = "it draws" if drawn is row else f"{drawn.name} at {_placed(drawn.site)} draws"
        return [*said, f"{which} from a torch.Generator whose state differed: give that a seed"]
    if row is not None and twin is not None and row.numbers != twin.numbers:
        return [*said, f"it was given other numbers: {row.numbers} and {twin.numbers}"]
    if outcome.kept is not None and (most := ulps(*outcome.kept)):
        bound = f"by at most {most:,} ulps in the first {VALUES:,} values"
        return [*said, f"given the same, the operator itself gave another result, {bound}"]
    otherwise = (
        "its inputs come in another order, or from outside the program: addresses (id(), a set of "
        "objects), threads, files, datetime.now(), os.getpid()"
    )
    return [*said, otherwise, *_look_at(_blame(outcome, found)[1])]


def _blame(outcome: Outcome, found: Difference) -> tuple[Site | None, Sequence[Site]]:
    """The line that drew or read; where none is known, those of the text that may be to blame."""
    one, other, causes = outcome.one, outcome.other, outcome.causes
    if len(causes) > 1 or outcome.against:
        return None, ()
    if causes:
        source = source_of(one, other, found, *causes)
    else:
        drawn = drawn_otherwise(one, other, found)
        source = None if drawn is None or drawn.generator != "own" else drawn.site
    return source, () if source is not None else one.to_blame.get("".join(causes) or "hash", ())


def _look_at(sites: Sequence[Site]) -> list[str]:
    if not sites:
        return []
    shown = "; ".join(map(_placed, sites[:MORE]))
    more = f" and {len(sites) - MORE} more" * (len(sites) > MORE)
    return [f"look at: {shown}{more}"]


def _given_seeds(outcome: Outcome) -> str:
    """The first seeds of one call that were not the same; empty if all were."""
    for cause in SEEDS:
        seeds = seeded_otherwise(outcome.one, outcome.other, cause)
        if seeds is not None:
            site = seeds[0].site
            where = "" if site is None else f" at {site.file}:{site.line}"
            given = " and ".join(each.value or "no seed" for each in seeds)
            return f"{seeds[0].name}{where} was given {given}"
    return ""


def _notes(outcome: Outcome) -> list[str]:
    notes = list(outcome.warnings)
    if outcome.found is None and not outcome.against:  # lines of versions are not the same
        others = aside(outcome.one, outcome.other)
        if others:
            what = "operator differs and leads" if others == 1 else "operators differ and lead"
            notes.append(f"{others:,} {what} to no loss and no weight")
    on_gpu = str(outcome.one.manifest["device"]).startswith("cuda")
    named = ((row.name.removeprefix("aten::"), row.site) for row in outcome.one.operators)
    listed = {
        f"{name} ({site.file}:{site.line})"
        for name, site in named
        if name in NONDETERMINISTIC and site is not None
    }
    if listed and not on_gpu:
        notes.append(
            "on CUDA, by torch's list and not compared here, these may differ from run to run: "
            f"{amounts.some(sorted(listed))}"
        )
    return [f"note: {each}" for each in notes]


def content(order: Order, outcome: Outcome) -> dict[str, Any]:
    """The result as JSON."""
    from auditor import __version__

    found = outcome.found
    operator = None if found is None else found.operator
    site = None if found is None else found.site
    source, blamed = (None, ()) if found is None else _blame(outcome, found)
    return {
        "schema": SCHEMA,
        "tool": {"name": "torch-step-audit", "version": __version__},
        "target": order.target,
        "args": list(order.args),
        "against": outcome.against or None,
        "alike": found is None,
        "steps": outcome.steps,
        "operators": len(outcome.one.operators),
        "runs": outcome.runs,
        "first": None
        if found is None
        else {
            "operator": None if operator is None else operator.name,
            "step": None
            if operator is None or operator.pass_name == "warmup"
            else operator.step + outcome.first_step,
            **_as_json(site),
        },
        "causes": list(outcome.causes),
        "source": None if source is None else _as_json(source),
        "to_blame": [_as_json(each) for each in blamed],
        "suspected": list(outcome.suspected),
        "lines": lines(outcome),
    }


def _as_json(site: Site | None) -> dict[str, Any]:
    return {
        name: None if site is None else getattr(site, name) for name in ("file", "line", "text")
    }


# -- the command -----------------------------------------------------------------------------------


def reproduce(
    *,
    target: str,
    steps: int,
    device: Device,
    timeout: float | None,
    against: str,
    form: str,
    quiet: bool,
    args: tuple[str, ...],
) -> int:
    """Compare two runs of a target; returns the exit code."""
    deadline = None if timeout is None else time.monotonic() + timeout
    order = Order(target, args, steps, device, deadline, against)
    say = (lambda text: None) if quiet else (lambda text: console.say(f"{text} ...", err=True))
    counted = progress_display.StepProgress()
    with progress_display.working("reproduce", lambda: str(counted), quiet=quiet):
        outcome = Runs(order, say, counted).outcome()
    if form == "json":
        console.hand_over(json.dumps(content(order, outcome), indent=2), form="json")
    else:
        for line in lines(outcome)[: 1 if quiet else None]:
            console.say(line)
    return 0 if outcome.found is None else EXIT_FOUND
