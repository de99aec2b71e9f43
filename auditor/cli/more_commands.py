"""More of the command line: checkpoints, drills, the viewer, the manual and agents. Heavy imports stay
inside the command that needs them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from auditor.cli import parameter_types
from auditor.cli.usage import PlainCommand, TargetCommand
from auditor.extensions import extension

if TYPE_CHECKING:
    from auditor.rule import Rule

_F = TypeVar("_F", bound=Callable[..., Any])

DEBUG = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show tracebacks of the auditor itself."
)
"""Read from the command line, also where that is not understood."""

MODULE = click.option(
    "-m",
    "module",
    is_flag=True,
    help="TARGET is a module that runs as a program, as with python -m.",
)

SELECT_PATCHES = click.option(
    "--select", callback=parameter_types.codes, metavar="CODES", help="Only patches of these rules."
)
UNSAFE = click.option(
    "--unsafe", is_flag=True, help="Also patches that may change what is trained."
)
TIMEOUT_OF_ALL = click.option(
    "--timeout", type=parameter_types.Seconds(), help="End after S seconds, all runs together."
)
DEVICE = click.option(
    "--device",
    type=parameter_types.Device(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="What the step may use.",
)


def _format(*names: str) -> Callable[[_F], _F]:
    """The option for the format of the result; the first is the default."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(names),
        default=names[0],
        show_default=True,
        help="Format of the result.",
    )


def out_folder(text: str) -> Callable[[_F], _F]:
    """The option for the folder of the results; ``text`` is its help."""
    return click.option("--out", type=click.Path(), callback=parameter_types.folder, help=text)


ALLOW_BROKEN_RULES = click.option(
    "--allow-broken-rules",
    is_flag=True,
    help="Go on without rules that break and rule packs that cannot "
    "be imported; else they are exit code 2.",
)


@click.command(cls=PlainCommand, short_help="Scan saved checkpoints for damage, NaN, stale rates.")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option(
    "--config",
    type=click.Path(),
    metavar="FILE",
    help="Settings to compare the learning rates with: .yaml, "
    ".toml, .json, or a .py file, which is read and not run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@out_folder("Also write report.json and report.html to this folder.")
@ALLOW_BROKEN_RULES
@DEBUG
def checkpoint(**options: Any) -> None:
    """Scan saved checkpoints: damage, NaN, stale rates, what resuming would miss. torch reads each
    with weights_only=True, in a process of its own.

    FILE is what torch.save or safetensors wrote, the .index.json of a sharded one, or a folder of
    checkpoints.

    Exit code: 0 all good, 1 one is damaged, refused or not looked at, 2 one cannot be read at all.
    """
    sys.exit(extension("checkpoints.command").checkpoint(**options))


@click.command(cls=TargetCommand, short_help="Plant a fault, and say whether training survives it.")
@click.argument("target")
@MODULE
@click.option(
    "--inject",
    "fault",
    required=True,
    callback=parameter_types.fault,
    metavar="FAULT@STEP",
    help="nan, inf, oom or kill, and the step.",
)
@click.option(
    "--steps",
    type=parameter_types.Whole(1),
    help="Steps of the run. [default: 10 after the fault]",
)
@TIMEOUT_OF_ALL
@out_folder("Folder for the results. [default: audits/drill-<target>-<time>/]")
@DEVICE
@click.option("--quiet", is_flag=True, help="Print only the verdict.")
@DEBUG
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def drill(**options: Any) -> None:
    """Plant a fault in TARGET at a step: does it go on, stop with a message, or train on with NaN?

    Steps count from 0. The target runs in a copy of the working directory, so no checkpoint of
    yours is replaced.

    \b
      audit drill trainer:step --inject nan@12
      audit drill trainer:step --inject oom@12
      audit drill train.py --inject kill@30 --steps 60 -- --resume

    Exit code: 0 survived, 1 failed, 2 the drill could not be done, 3 the target failed on its own.
    """
    options["target"] = parameter_types.target(options["target"], as_module=options.pop("module"))
    sys.exit(extension("drill.command").drill(**options))


@click.command(cls=TargetCommand, short_help="Run TARGET twice, and say where the runs part.")
@click.argument("target")
@MODULE
@click.option(
    "--steps",
    type=parameter_types.Whole(1),
    default=3,
    show_default=True,
    help="Steps of each run.",
)
@click.option(
    "--against",
    default="",
    metavar="COMMIT",
    help="Compare with the project as it was in this commit (git), with seeds and clock held.",
)
@TIMEOUT_OF_ALL
@DEVICE
@_format("terminal", "json")
@click.option("--quiet", is_flag=True, help="Print only the verdict.")
@DEBUG
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def reproduce(**options: Any) -> None:
    """Run TARGET twice and compare what every operator gave: do both runs come to the same losses
    and weights, and if not, which line is the first that differs, and why.

    Where they differ it runs again with one generator, the hash seed or the clock held, until it is
    known which one is to blame. Each run is in a copy of the working directory.

    \b
      audit reproduce trainer:step
      audit reproduce train.py --steps 10 -- --config small.yaml
      audit reproduce train.py --against main

    Exit code: 0 alike, 1 they differ, 2 nothing can be compared, 3 the target failed on its own.
    """
    options["target"] = parameter_types.target(options["target"], as_module=options.pop("module"))
    sys.exit(extension("reproduce.command").reproduce(**options))


@click.command(cls=TargetCommand, short_help="Say what fits on which GPU, without one.")
@click.argument("target")
@MODULE
@click.option(
    "--gpu",
    multiple=True,
    metavar="NAME",
    help="A GPU to fit it on: H100, A100, L4, T4 ... (repeatable; a wrong name lists all). "
    "[default: H100]",
)
@click.option(
    "--batch",
    default="",
    metavar="NAME",
    help="What sets the batch size where no DataLoader does: an argument of the program, or "
    "[FILE:]VARIABLE.",
)
@click.option(
    "--world",
    type=parameter_types.Whole(2, 1 << 20),
    metavar="N",
    help="Also estimate ZeRO-1, 2 and 3 over N ranks, by arithmetic.",
)
@click.option(
    "--device",
    type=parameter_types.Device(["auto", "rehearse", "null"]),
    default="auto",
    show_default=True,
    help="What plays the GPU: the null device where a CUDA build of torch is installed, else the "
    "shadow (rehearse).",
)
@click.option(
    "--budget",
    type=parameter_types.Seconds(),
    default=180.0,
    show_default=True,
    help="Seconds to spend: no re-run begins that is not expected to end in time.",
)
@_format("terminal", "json")
@click.option("--out", type=click.Path(), metavar="FILE", help="Also write it to this file.")
@click.option("--quiet", is_flag=True, help="No progress, no advice.")
@DEBUG
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def plan(**options: Any) -> None:
    """Say what fits on which GPU: TARGET with other batch sizes, activation checkpointing, bf16,
    another optimizer, another setting of the allocator.

    The unmodified program runs again and again for a few steps, without a GPU, in copies of the
    working directory. Each peak is that of a re-run, or is marked as estimated; so is the largest
    batch for each GPU. It prints no times.

    \b
      audit plan train.py --gpu A100
      audit plan train.py --gpu T4 --gpu L4 --world 8 -- --config small.yaml
      audit plan trainer:step --batch trainer.py:BATCH

    Exit code: 0 done, 2 nothing can be planned, 3 the target failed on its own, 130 interrupted
    (what is known by then is printed).
    """
    options["target"] = parameter_types.target(options["target"], as_module=options.pop("module"))
    sys.exit(extension("plan.command").run(**options))


@click.command(
    cls=PlainCommand, short_help="Open TensorBoard on a run, its report in the Audit tab."
)
@click.argument("path", type=click.Path())
@click.option(
    "--port",
    type=parameter_types.Whole(0, 65535),
    help="Port on 127.0.0.1. [default: a free one from 6006]",
)
@click.option(
    "--browser/--no-browser",
    default=True,
    help="Open a browser, or only print the address. [default: open]",
)
@click.option(
    "--trace", is_flag=True, help="The same pages from a small server, without TensorBoard."
)
@click.option(
    "--debug", is_flag=True, help="Show tracebacks, and what TensorBoard and its plugins log."
)
def view(**options: Any) -> None:
    """Open TensorBoard on PATH (a run's folder, or a folder of runs), with reports and traces in
    its Audit tab.

    Nothing is sent anywhere; only this machine can reach it. Ctrl-C ends it.
    """
    sys.exit(extension("tensorboard_tab.command").view(**options))


@click.command(
    cls=PlainCommand, short_help="Say what can be looked at here, and what adds the rest."
)
@_format("terminal", "json")
@click.option(
    "--clean",
    is_flag=True,
    help="Remove what audits of 0.2 kept outside their --out: a null device, copies of traces.",
)
@DEBUG
def doctor(form: str, clean: bool) -> None:
    """Say what is installed, what can be looked at on this machine, and which command adds the
    rest.

    Exit code: 0, whatever is lacking.
    """
    from auditor.cli import doctor as command

    sys.exit(command.clean() if clean else command.doctor(form=form))


@click.command(cls=PlainCommand, short_help="Look at files without running them.")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("--select", callback=parameter_types.codes, metavar="CODES", help="Only these rules.")
@click.option("--ignore", callback=parameter_types.codes, metavar="CODES", help="Not these rules.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default="never",
    show_default=True,
    help="Exit code 1 where something so severe is found.",
)
@_format("text", "sarif")
@DEBUG
def check(**options: Any) -> None:
    """Look at Python files, and at those in folders, without running them: what their source alone
    proves. Everything else takes a run.

    Exit code: 0 done, 1 a finding reached --fail-on, 2 a file cannot be read.
    """
    sys.exit(extension("check.command").check(**options))


@click.command(cls=PlainCommand, short_help="List the rules: all, or a family.")
@click.argument("codes", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON: the same as --format json.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["terminal", "json", "markdown"]),
    default="terminal",
    help="markdown is the whole manual.",
)
def rules(codes: str | None, as_json: bool, form: str) -> None:
    """List all rules, or those of CODES: codes or families, as in SYNC,MEM005."""
    from auditor.cli import console
    from auditor.judging import catalogue

    known = catalogue.choose(codes.split(","), ()) if codes else catalogue.rules()
    if form == "markdown":
        from auditor.judging.manual import manual

        console.hand_over(manual(known))
        return
    if as_json or form == "json":
        import json

        facts = [
            {
                "code": r.code,
                "name": r.name(),
                "title": r.title(),
                "severity": r.severity.value,
                "since": r.since,
            }
            for r in known
        ]
        console.hand_over(json.dumps(facts, indent=2), form="json")
        return
    _list(known)
    console.say("audit explain CODE shows the manual page of one.")


@click.command(cls=PlainCommand, short_help="Show the manual page of a rule.")
@click.argument("code")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.option("--debug", is_flag=True, expose_value=False, hidden=True)
def explain(code: str, as_json: bool) -> None:
    """Show the manual page of the rule CODE; of a family, as in SYNC, list its rules."""
    from auditor.cli import console
    from auditor.judging import catalogue, left, manual

    family, gone = catalogue.own_families(code), left.among([code.strip().upper()])
    if as_json:
        import json

        facts: Any = [manual.facts(each) for each in family] or (
            {"code": gone[0], "instead": left.LEFT[gone[0]]}
            if gone
            else manual.facts(catalogue.rule(code))
        )
        console.hand_over(json.dumps(facts, indent=2), form="json")
        return
    if not family:
        page = left.sentence(gone[0]) if gone else manual.page(catalogue.rule(code))
        console.show(page.rstrip("\n"))
        return
    _list(family)
    console.say(f"audit explain {family[0].code} shows the manual page of one.")


@click.command(cls=PlainCommand, short_help="Print what a coding agent should know of audit.")
@click.option("--skill", is_flag=True, help="As a SKILL.md, with its front matter.")
def agents(*, skill: bool) -> None:
    """Print a section for a repository's AGENTS.md: how to audit, fix and check, and what to avoid.

    \b
      audit agents >> AGENTS.md
      mkdir -p .claude/skills/audit-training-step
      audit agents --skill > .claude/skills/audit-training-step/SKILL.md
    """
    from auditor.cli import agents as texts
    from auditor.cli import console

    console.hand_over(texts.skill() if skill else texts.section())


@click.command(cls=PlainCommand, short_help="Serve audits to a coding agent over MCP.")
@DEBUG
def mcp() -> None:
    """Serve audits to a coding agent over the Model Context Protocol, on stdin and stdout.

    The agent's program starts it in the folder of the project and ends it; files outside of that
    folder are refused (docs/agents.md). Needs the package mcp: pip install 'torch-step-audit[mcp]'.

    Exit code: 0 the client went away, 2 the package mcp is not installed.
    """
    sys.exit(extension("mcp.command").serve())


def _list(rules: Iterable[type[Rule]]) -> None:
    from auditor.cli import console

    for each in rules:
        console.say(f"{each.code:9} {each.severity.value:8} {each.title()}")
    console.say("")
