"""The command line: one function a command. Heavy imports stay in their command."""

import sys
from typing import Any

import click

from auditor.cli import more_commands, parameter_types
from auditor.cli.usage import AuditGroup, PlainCommand, TargetCommand


@click.group(
    cls=AuditGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="torch-step-audit", prog_name="audit")
def main() -> None:
    """Audit a PyTorch training step: the exact line, its measured price, and a patch that applies.

    \b
      audit run trainer:step --steps 50     run the step, find what is wrong, write the report
      audit fix audits/trainer-step-.../report.json | git apply
      audit explain SYNC001                 what a rule means
    """


def judging_options(command: Any) -> Any:
    """Options of every command that judges a recording."""
    options = (
        more_commands.option(
            "--select",
            "Only these rules: codes or families, as in SYNC,MEM005.",
            callback=parameter_types.codes,
            metavar="CODES",
        ),
        more_commands.option(
            "--ignore", "All rules but these.", callback=parameter_types.codes, metavar="CODES"
        ),
        more_commands.option(
            "--fail-on",
            "Exit with code 1 if a finding has at least this severity. [default: never]",
            type=click.Choice(["error", "warning", "note", "never"]),
        ),
        more_commands.option(
            "--format",
            "formats",
            "Also write the report as terminal, json, sarif, junit, github, codequality, "
            "markdown or agent (repeatable); to stdout without FILE.",
            multiple=True,
            callback=parameter_types.formats,
            metavar="NAME[=FILE]",
        ),
        more_commands.option(
            "--baseline",
            "File of accepted findings: only other findings count for --fail-on.",
            type=click.Path(),
            metavar="FILE",
        ),
        more_commands.flag(
            "--update-baseline", "Accept all findings: write them to the file of --baseline."
        ),
        more_commands.flag(
            "--interactive-figures",
            "Put plotly into report.html (2 MB more) to redraw its figures.",
        ),
        more_commands.ALLOW_BROKEN_RULES,
        more_commands.flag("--quiet", "Print only the path of the report."),
        more_commands.DEBUG,
    )
    for option in reversed(options):
        command = option(command)
    return command


@main.command(
    cls=TargetCommand, short_help="Run a training step, find what is wrong, write the report."
)
@click.argument("target")
@more_commands.MODULE
@more_commands.option(
    "--steps",
    "Steps of each pass (12 if --device rehearse).",
    type=parameter_types.Whole(1),
    default=50,
)
@more_commands.option(
    "--warmup",
    "Warm-up steps before the first pass, excluded from all numbers.",
    type=parameter_types.Whole(0),
    default=5,
)
@more_commands.out_folder("Folder for the results. [default: audits/<target>-<time>/]")
@more_commands.option(
    "--device",
    "Device for the step. Without a GPU, auto runs it on the CPU, then rehearses its GPU path "
    "on a simulated device (same values, no times); rehearse does only that. With a CUDA build "
    "of torch, torch's own CUDA code then also runs on a null device; null fails if it cannot.",
    type=parameter_types.Device(["auto", "cuda", "cpu", "rehearse", "null"]),
    default="auto",
)
@more_commands.option(
    "--gpu",
    "The GPU to simulate if there is none: H100, H200, B200, A100, L4, A10, RTX4090, T4 "
    "...; a wrong name lists all.",
    metavar="NAME",
    default="",
    show_default=False,
)
@more_commands.option(
    "--memory-limit",
    "Device memory that the step may use, such as 8GiB; beyond it torch raises its out-of-memory error.",
    callback=parameter_types.size,
    metavar="SIZE",
)
@more_commands.option(
    "--overhead",
    "Seconds for all passes after the timing pass, and as many again for a rehearsal: if steps "
    "are long, these passes take fewer of them.",
    type=parameter_types.Seconds(),
    default=60.0,
)
@more_commands.option(
    "--timeout",
    "End the target after S seconds and report on what was recorded.",
    type=parameter_types.Seconds(),
)
@more_commands.flag(
    "--verify", "After the audit, run the target again with each patch and measure the gain."
)
@more_commands.option(
    "--budget",
    "Seconds that --verify may spend, as for audit verify.",
    type=parameter_types.Seconds(zero=True),
    default=120.0,
)
@more_commands.option(
    "--nproc",
    "Run the target in N processes on this machine, with the environment of torchrun; rules "
    "judge the rank that the others wait for.",
    type=parameter_types.Whole(1, 64),
    default=1,
)
@more_commands.option(
    "--world",
    "Rehearse ranks of a job of N processes, each alone on a null device that simulates NCCL: "
    "no GPU and no other process is needed (docs/ranks.md).",
    type=parameter_types.Whole(2, 1 << 20),
    metavar="N",
)
@more_commands.option(
    "--ranks",
    "Ranks of --world to rehearse, as in 0,63. [default: the first and the last]",
    default="",
    metavar="LIST",
    show_default=False,
)
@judging_options
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(**options: Any) -> None:
    """Run TARGET, find what costs time and memory, and write the report.

    TARGET is package.module:callable or path/to/file.py:callable (a function without arguments
    that takes one training step, or a generator or iterator that yields once per step),
    path/to/script.py (an unmodified training script: its optimizer marks the steps), or after -m
    package.module (as python -m runs it). ARGS after -- are the target's own arguments.

    \b
      audit run trainer:step --steps 50
      audit run src/train.py:trainer.step
      audit run train.py -- --batch_size=8 --max_iters=200
      audit run -m package.train -- --config small.yaml
      audit run ddp.py:step --nproc 2
      audit run train.py --world 64
      torchrun --nproc-per-node 2 -m auditor run train.py -- --lr=0.1
      audit run -- torchrun --nproc-per-node 2 train.py --lr=0.1

    Exit code: 0 done, 1 a finding reached --fail-on, 2 the audit could not be done, a rule broke,
    or nothing was trained, 3 the target failed (the report covers what ran), 130 interrupted.
    """
    from auditor.cli import launch
    from auditor.cli import run as command
    from auditor.runs.plan import REHEARSED_STEPS

    if launch.is_launcher(options["target"]):
        sys.exit(launch.through(options["target"], options["args"]))
    given = click.get_current_context().get_parameter_source("steps")
    if options["device"] == "rehearse" and given is click.core.ParameterSource.DEFAULT:
        options["steps"] = REHEARSED_STEPS
    sys.exit(launch.told(lambda: command.run(**options)))


@main.command(cls=PlainCommand, short_help="Judge a recording, a trace or a memory snapshot.")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@more_commands.out_folder(
    "Folder for the results. [default: the recording's own, or audits/<trace>]"
)
@more_commands.flag(
    "--tensorboard", "Also write the folder tensorboard/: a copy of the trace, and scalars."
)
@judging_options
def analyze(**options: Any) -> None:
    """Judge a recording, a trace or a memory snapshot, without a GPU, the program or torch.

    PATH is the folder of a run (or its recording/ inside), a trace that torch.profiler wrote
    (.json, .json.gz), a CUDA memory snapshot (.pickle, .pickle.gz, or a folder that holds one), or
    a folder with the traces of all ranks of a job (one report, on the rank that the others wait for).

    \b
      audit analyze audits/trainer-step-20260101-120000
      audit analyze worker0.pt.trace.json.gz
      audit analyze snapshot.pickle
      audit analyze traces-of-all-ranks/
    """
    from auditor.cli import analyze as command

    sys.exit(command.analyze(**options))


@main.command(cls=PlainCommand, short_help="Print the patches of a report, or apply them.")
@click.argument("report", type=click.Path())
@more_commands.flag("--apply", "Edit the files instead of printing the diff.")
@more_commands.flag(
    "--check",
    "List the patches that are not applied yet, one per line; exit code 1 if there are any.",
)
@more_commands.SELECT_PATCHES
@more_commands.UNSAFE
@more_commands.DEBUG
def fix(**options: Any) -> None:
    """Print the patches of a REPORT (report.json or its folder) as one diff that git apply accepts.

    Only safe patches unless --unsafe. A file that changed since the audit is not touched.
    """
    from auditor.cli import fix as command

    sys.exit(command.fix(**options))


@main.command(
    cls=PlainCommand, short_help="Run the target again with each patch, and measure the gain."
)
@click.argument("report", type=click.Path())
@more_commands.SELECT_PATCHES
@more_commands.UNSAFE
@more_commands.option(
    "--budget",
    "Seconds to spend. No run starts that would probably end later; a run in progress is not "
    "cut off. 0: run each patch once and check its result, however long that takes.",
    type=parameter_types.Seconds(zero=True),
    default=120.0,
)
@more_commands.flag("--quiet", "Print only the path of the report.")
@more_commands.DEBUG
def verify(**options: Any) -> None:
    """Run the target of a REPORT again with each patch, and measure what the patch saves.

    Each run is a fresh process in a copy of the project, from the same seeds, in turn with and
    without the patch. The report then has the ratio of step times with its interval, peak memory,
    and whether losses and parameters stay the same; a patch that changes them is dropped from
    fixes.patch. Your files are not touched.
    """
    from auditor.extensions.verify import command

    sys.exit(command.run(**options))


@main.command(cls=PlainCommand, short_help="Compare two audits: time, memory, findings.")
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@more_commands.option(
    "--max-regression",
    "Exit with code 1 if a step is proven to be slower by more than this, as in 5%.",
    callback=parameter_types.share,
    metavar="PCT",
)
@more_commands.flag("--json", "as_json", "Print JSON.")
@more_commands.DEBUG
def compare(**options: Any) -> None:
    """Compare two audits: step time with an interval, memory, host syncs, findings that are new or
    gone.

    BEFORE and AFTER are report.json, the folder of a run or its recording/, or a folder of several
    runs of one program: then the spread between runs is measured instead of assumed.

    \b
      audit compare audits/main audits/branch --max-regression 5%

    Exit code: 0 done, 1 a regression beyond --max-regression is proven, 2 the two cannot be
    compared.
    """
    from auditor.extensions.verify import compare_command

    sys.exit(compare_command.run(**options))


for _door in (
    more_commands.plan,
    more_commands.checkpoint,
    more_commands.drill,
    more_commands.reproduce,
    more_commands.view,
    more_commands.check,
    more_commands.doctor,
    more_commands.rules,
    more_commands.explain,
    more_commands.agents,
    more_commands.mcp,
):
    main.add_command(_door)
