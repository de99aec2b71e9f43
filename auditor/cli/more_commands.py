"""More of the command line: checkpoints, drills, the viewer, the manual and agents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from auditor.cli import parameter_types
from auditor.cli.usage import PlainCommand, TargetCommand
from auditor.errors import AuditProblem

if TYPE_CHECKING:
    from auditor.rule import Rule

_F = TypeVar("_F", bound=Callable[..., Any])


def option(*words: str, **more: Any) -> Callable[[_F], _F]:
    """An option: its names, then its help."""
    more.setdefault("show_default", "default" in more)
    return click.option(*words[:-1], help=words[-1], **more)


def flag(*words: str, **more: Any) -> Callable[[_F], _F]:
    """An option without a value."""
    return option(*words, is_flag=True, show_default=False, **more)


DEBUG = flag("--debug", "Show tracebacks of the auditor itself.", expose_value=False)
"""Read from the command line even if the rest of it is not understood."""

MODULE = flag("-m", "module", "TARGET is a module to run as a program, as with python -m.")

SELECT_PATCHES = option(
    "--select", "Only the patches of these rules.", callback=parameter_types.codes, metavar="CODES"
)
UNSAFE = flag("--unsafe", "Include patches that may change training results.")
TIMEOUT_OF_ALL = option(
    "--timeout", "End all runs together after S seconds.", type=parameter_types.Seconds()
)
DEVICE = option(
    "--device",
    "Device for the step.",
    type=parameter_types.Device(["auto", "cuda", "cpu"]),
    default="auto",
)


def _format(*names: str) -> Callable[[_F], _F]:
    return option(
        "--format", "form", "Format of the result.", type=click.Choice(names), default=names[0]
    )


def out_folder(text: str) -> Callable[[_F], _F]:
    """The option for the folder of the results; ``text`` is its help."""
    return click.option("--out", type=click.Path(), callback=parameter_types.folder, help=text)


ALLOW_BROKEN_RULES = flag(
    "--allow-broken-rules",
    "Continue without rules that fail and rule packs that cannot be imported; otherwise exit "
    "code 2.",
)


@click.command(cls=PlainCommand, short_help="Scan saved checkpoints for damage, NaN, stale rates.")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@option(
    "--config",
    "Settings to compare the learning rates with: .yaml, .toml, .json, or a .py file, which "
    "is read and not run.",
    type=click.Path(),
    metavar="FILE",
)
@flag("--json", "as_json", "Print JSON.")
@out_folder("Also write report.json and report.html to this folder.")
@ALLOW_BROKEN_RULES
@DEBUG
def checkpoint(**options: Any) -> None:
    """Scan saved checkpoints for damage, NaN, stale learning rates, and state that a resume would
    miss. torch reads each file with weights_only=True, in its own process.

    FILE is a file of torch.save or safetensors, the .index.json of a sharded checkpoint, or a
    folder of checkpoints.

    Exit code: 0 all good, 1 one is damaged, refused or not scanned, 2 one cannot be read at all.
    """
    from auditor.extensions.checkpoints import command

    sys.exit(command.checkpoint(**options))


@click.command(
    cls=TargetCommand, short_help="Plant a fault, and check whether training survives it."
)
@click.argument("target")
@MODULE
@option(
    "--inject",
    "fault",
    "The fault (nan, inf, oom or kill) and its step.",
    required=True,
    callback=parameter_types.fault,
    metavar="FAULT@STEP",
)
@option("--steps", "Steps of the run. [default: 10 after the fault]", type=parameter_types.Whole(1))
@TIMEOUT_OF_ALL
@out_folder("Folder for the results. [default: audits/drill-<target>-<time>/]")
@DEVICE
@flag("--quiet", "Print only the verdict.")
@DEBUG
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def drill(**options: Any) -> None:
    """Plant a fault in TARGET at a step: does training recover, stop with a message, or go on with
    NaN?

    Steps count from 0. The target runs in a copy of the working directory, so no checkpoint of
    yours is replaced.

    \b
      audit drill trainer:step --inject nan@12
      audit drill trainer:step --inject oom@12
      audit drill train.py --inject kill@30 --steps 60 -- --resume

    Exit code: 0 survived, 1 failed, 2 the drill could not be done, 3 the target failed on its own.
    """
    from auditor.extensions.drill import command

    sys.exit(command.drill(**options))


@click.command(
    cls=TargetCommand, short_help="Run TARGET twice, and name the first line that differs."
)
@click.argument("target")
@MODULE
@option("--steps", "Steps of each run.", type=parameter_types.Whole(1), default=3)
@option(
    "--against",
    "Compare with this git commit of the project, with seeds and clock held fixed.",
    default="",
    metavar="COMMIT",
    show_default=False,
)
@TIMEOUT_OF_ALL
@DEVICE
@_format("terminal", "json")
@flag("--quiet", "Print only the verdict.")
@DEBUG
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def reproduce(**options: Any) -> None:
    """Run TARGET twice and compare the results of all operators. Do both runs reach the same losses
    and weights? If not, which line is the first that differs, and why?

    If the runs differ, TARGET runs again with one generator, the hash seed or the clock held fixed,
    until the cause is known. Each run is in a copy of the working directory.

    \b
      audit reproduce trainer:step
      audit reproduce train.py --steps 10 -- --config small.yaml
      audit reproduce train.py --against main

    Exit code: 0 alike, 1 they differ, 2 nothing can be compared, 3 the target failed on its own.
    """
    from auditor.extensions.reproduce import result

    sys.exit(result.reproduce(**options))


@click.command(
    cls=TargetCommand, short_help="Say which batch size fits on which GPU, without a GPU."
)
@click.argument("target")
@MODULE
@option(
    "--gpu",
    "A GPU to plan for: H100, A100, L4, T4 ... (repeatable; a wrong name lists all). "
    "[default: H100]",
    multiple=True,
    metavar="NAME",
)
@option(
    "--batch",
    "If no DataLoader sets the batch size: the argument of the program, or the [FILE:]VARIABLE, "
    "that sets it.",
    default="",
    metavar="NAME",
    show_default=False,
)
@option(
    "--world",
    "Also estimate ZeRO-1, 2 and 3 over N ranks, by arithmetic.",
    type=parameter_types.Whole(2, 1 << 20),
    metavar="N",
)
@option(
    "--device",
    "How the GPU is simulated: by the null device if a CUDA build of torch is installed, else by "
    "the shadow device (rehearse).",
    type=parameter_types.Device(["auto", "rehearse", "null"]),
    default="auto",
)
@option(
    "--budget",
    "Seconds to spend. No re-run starts that would probably end later.",
    type=parameter_types.Seconds(),
    default=180.0,
)
@_format("terminal", "json")
@option("--out", "Also write the result to this file.", type=click.Path(), metavar="FILE")
@flag("--quiet", "Print neither progress nor advice.")
@DEBUG
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def plan(**options: Any) -> None:
    """Say what fits on which GPU: TARGET with other batch sizes, activation checkpointing, bf16,
    another optimizer, another setting of the allocator.

    The unmodified program runs a few steps for each change, without a GPU, in copies of the working
    directory. Each peak, and the largest batch for each GPU, comes from a re-run or is marked as
    estimated. No times are printed.

    \b
      audit plan train.py --gpu A100
      audit plan train.py --gpu T4 --gpu L4 --world 8 -- --config small.yaml
      audit plan trainer:step --batch trainer.py:BATCH

    Exit code: 0 done, 2 nothing can be planned, 3 the target failed on its own, 130 interrupted
    (the results so far are printed).
    """
    from auditor.extensions.plan import command

    sys.exit(command.run(**options))


@click.command(
    cls=PlainCommand, short_help="Open a run in TensorBoard, with its report in the Audit tab."
)
@click.argument("path", type=click.Path())
@option(
    "--port",
    "Port on 127.0.0.1. [default: a free one from 6006]",
    type=parameter_types.Whole(0, 65535),
)
@option(
    "--browser/--no-browser",
    "Open a browser, or only print the address. [default: open a browser]",
    default=True,
    show_default=False,
)
@flag("--debug", "Show tracebacks, and what TensorBoard and its plugins log.")
def view(**options: Any) -> None:
    """Open TensorBoard on PATH (a run's folder, or a folder of runs), with reports and traces in
    its Audit tab.

    Nothing is sent anywhere; only this machine can reach it. Ctrl-C ends it.
    """
    from auditor.extensions.tensorboard_tab import command

    command.view(**options)


@click.command(
    cls=PlainCommand, short_help="Say what works on this machine, and how to add the rest."
)
@DEBUG
def doctor() -> None:
    """Say what is installed, what can be audited on this machine, and which command adds the rest.

    Exit code: always 0.
    """
    from auditor.cli import doctor as command

    sys.exit(command.doctor())


@click.command(cls=PlainCommand, short_help="Check Python files without running them.")
@click.argument("files", nargs=-1, required=True, type=click.Path())
@option("--select", "Only these rules.", callback=parameter_types.codes, metavar="CODES")
@option("--ignore", "All rules but these.", callback=parameter_types.codes, metavar="CODES")
@option(
    "--fail-on",
    "Exit with code 1 if a finding has at least this severity.",
    type=click.Choice(["error", "warning", "note", "never"]),
    default="never",
)
@_format("text", "sarif")
@DEBUG
def check(**options: Any) -> None:
    """Check Python files, also those in folders, without running them: only defects that the source
    alone proves. audit run finds the rest.

    Exit code: 0 done, 1 a finding reached --fail-on, 2 a file cannot be read.
    """
    from auditor.extensions.check import command

    sys.exit(command.check(**options))


@click.command(cls=PlainCommand, short_help="List the rules: all, or a family.")
@click.argument("codes", required=False)
@flag("--json", "as_json", "Print JSON, as --format json.")
@option(
    "--format",
    "form",
    "Format of the list; markdown prints the whole manual.",
    type=click.Choice(["terminal", "json", "markdown"]),
    default="terminal",
    show_default=False,
)
def rules(codes: str | None, as_json: bool, form: str) -> None:
    """List all rules, or those of CODES: codes or families, as in SYNC,MEM005."""
    from auditor.cli import console
    from auditor.judging import catalogue

    known = catalogue.choose(codes.split(","), ()) if codes else catalogue.rules()
    if form == "markdown":
        from auditor.judging.catalogue import manual

        console.hand_over(manual(known))
        return
    if as_json or form == "json":
        import json

        facts = [catalogue.facts(each, whole=False) for each in known]
        console.hand_over(json.dumps(facts, indent=2), form="json")
        return
    _list(known)
    console.say("audit explain CODE shows the manual page of a rule.")


@click.command(cls=PlainCommand, short_help="Show the manual page of a rule.")
@click.argument("code")
@flag("--json", "as_json", "Print JSON.")
@click.option("--debug", is_flag=True, expose_value=False, hidden=True)
def explain(code: str, as_json: bool) -> None:
    """Show the manual page of the rule CODE, or list the rules of a family, as in SYNC."""
    from auditor.cli import console
    from auditor.judging import catalogue

    family, gone = catalogue.own_families(code), catalogue.that_left([code.strip().upper()])
    if as_json:
        import json

        facts: Any = [catalogue.facts(each) for each in family] or (
            {"code": gone[0], "instead": catalogue.LEFT[gone[0]]}
            if gone
            else catalogue.facts(catalogue.rule(code))
        )
        console.hand_over(json.dumps(facts, indent=2), form="json")
        return
    if not family:
        page = catalogue.instead_of(gone[0]) if gone else catalogue.page(catalogue.rule(code))
        console.show(page.rstrip("\n"))
        return
    _list(family)
    console.say(f"audit explain {family[0].code} shows the manual page of that rule.")


@click.command(cls=PlainCommand, short_help="Print what a coding agent should know about audit.")
@flag("--skill", "Print it as a SKILL.md, with front matter.")
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

    The agent's program starts and ends this server in the folder of the project; files outside of
    that folder are refused (docs/agents.md). Needs the package mcp: pip install 'torch-step-audit[mcp]'.

    Exit code: 0 the client disconnected, 2 the package mcp is not installed.
    """
    try:
        from auditor.extensions.mcp.server import serving
    except ModuleNotFoundError as lacking:
        if (lacking.name or "").partition(".")[0] == "auditor":
            raise
        raise AuditProblem(
            f"audit mcp needs the package mcp, version 2 or newer: {lacking}",
            "pip install 'torch-step-audit[mcp]'",
        ) from None
    serving(Path.cwd())


def _list(rules: Iterable[type[Rule]]) -> None:
    from auditor.cli import console

    for each in rules:
        console.say(f"{each.code:9} {each.severity.value:8} {each.title()}")
    console.say("")
