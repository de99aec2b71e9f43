"""Ways for a target, or for the audit around it, to die; each with what must be left when it has.

``body`` runs in the step, at :data:`BAD` (0-based, counted over all passes of one process) unless
``at`` is None: then it stands at the module's top, before the model. Words in ``says`` stand in
stderr, stdout or report.json.
"""

from dataclasses import dataclass, field

BAD = 9

RAISED, KILLED, TIMEOUT, DONE, OOM, INTERRUPTED = (
    (3, ("raised",)),
    (3, ("killed",)),
    (3, ("timeout",)),
    (0, ("completed",)),
    (3, ("oom",)),
    (130, ("interrupted",)),
)
IMPOSSIBLE: tuple[int, tuple[str, ...]] = (2, ())
CUT_OFF: tuple[int, tuple[str, ...]] = (2, ("interrupted", "completed", "raised"))
"""The recording could be written no more: a report on what was there before, and one sentence."""

Ending = tuple[int, tuple[str, ...]]


@dataclass(frozen=True)
class Death:
    """One way to die. ``quick`` ones run in ``make test-full``, all of them in ``make deaths``."""

    body: str = ""
    end: Ending = RAISED
    at: int | None = BAD
    says: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    more: str = ""
    """What stands before the step: classes, functions."""

    behind: str = ""
    """What stands behind it: another step."""

    shell: str = ""
    """Redirections of the audit's own streams."""

    outside: str = ""
    """What is done to the audit while it runs: a name in ``test_deaths.OUTSIDE``."""

    quick: bool = False
    ends: tuple[Ending, ...] = field(default=())
    """Other endings that are right, too."""


def raising(
    what: str, says: str = "", *, more: str = "", quick: bool = False, end: Ending = RAISED
) -> Death:
    """The step raises ``what``."""
    return Death(f"raise {what}", end, says=(says,) if says else (), more=more, quick=quick)


TRAINER = """\
import os, sys, time, signal, threading, subprocess
{early}
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
count = 0
{more}

def wait():  # say that we stand in a step, and stay there until we are ended or told to go on
    open("waiting", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.05)

def bad():
    pass
{body}

def step():
    global count
    number, count = count, count + 1
    optimizer.zero_grad()
    loss = model(torch.ones(2, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if number == {at}:
        bad()
"""


def source(death: Death) -> str:
    """The trainer of a death."""
    lines = death.body.strip("\n").split("\n")
    inside = "" if death.at is None else "\n".join(f"    {line}" for line in lines)
    early = death.body if death.at is None else ""
    return TRAINER.format(early=early, more=death.more, body=inside, at=death.at) + death.behind


LOADER = """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, n):
        if n == 40:
            {bad}
        return torch.ones(8)

batches = iter(torch.utils.data.DataLoader(Data(), batch_size=4, num_workers={workers}))

def step():
    optimizer.zero_grad()
    model(next(batches)).sum().backward()
    optimizer.step()
"""


def loading(
    bad: str, *, workers: int, end: Ending = RAISED, says: str = "", ends: tuple[Ending, ...] = ()
) -> Death:
    """The DataLoader dies."""
    return Death(
        "",
        end,
        at=10**9,
        says=(says,) if says else (),
        behind=LOADER.format(bad=bad, workers=workers),
        ends=ends,
    )


HANG = ("--timeout", "30")
"""Enough for a busy machine to come to the step that hangs, in s."""

DEATHS: dict[str, Death] = {
    # -- what a step raises
    "stop_iteration": Death("raise StopIteration", RAISED, ends=(DONE,)),
    "generator_exit": raising("GeneratorExit"),
    "keyboard_interrupt": Death("raise KeyboardInterrupt", RAISED, ends=(INTERRUPTED,)),
    "system_exit_text": raising("SystemExit('out of data')", "out of data"),
    "str_exits": raising(
        "Odd('x')", "Odd", more="class Odd(Exception):\n    def __str__(self): os._exit(5)"
    ),
    "cause_cycle": Death(
        "a, b = ValueError('a'), ValueError('b')\na.__cause__ = b\nb.__cause__ = a\nraise a"
    ),
    "group": raising(
        "ExceptionGroup('two', [ValueError('a'), TypeError('b')]) if sys.version_info >= (3, 11) "
        "else ValueError('two')",
        "two",
    ),
    "recursion": Death("def deep(): deep()\ndeep()", says=("RecursionError",)),
    "memory_error": raising("MemoryError", end=OOM),
    "cpu_oom": Death("torch.empty(1 << 50)", OOM),
    "raised_in_hook": Death(
        "p = next(model.parameters())\np.register_hook(lambda g: 1 / 0)\nmodel(torch.ones(2, "
        "8)).sum().backward()",
        says=("ZeroDivisionError",),
    ),
    "raised_in_function": Death(
        "F.apply(torch.ones(1, requires_grad=True)).sum().backward()",
        more="class F(torch.autograd.Function):\n    @staticmethod\n    "
        "def forward(ctx, x): return x * 1\n    @staticmethod\n    def backward(ctx, g): raise "
        "KeyError('backward')",
        says=("KeyError",),
    ),
    "raised_in_step_hook": Death(
        "optimizer.register_step_pre_hook(lambda *a: 1 / 0)\noptimizer.step()",
        says=("ZeroDivisionError",),
    ),
    "raised_in_del": Death(
        "D()", DONE, more="class D:\n    def __del__(self): raise ValueError('in del')"
    ),
    "raised_in_thread": Death(
        "t = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()", DONE
    ),
    "exit_in_thread": Death("t = threading.Thread(target=sys.exit)\nt.start()\nt.join()", DONE),
    "excepthook_raises": Death(
        "def hook(*a): raise ValueError('hook')\nsys.excepthook = hook\nraise KeyError('first')",
        says=("first",),
    ),
    "handled": Death(
        "try:\n    raise RuntimeError('CUDA out of memory')\nexcept RuntimeError:\n    pass", DONE
    ),
    # -- data loaders
    "dataset_raises": loading("raise ValueError('item 40')", workers=0, says="item 40"),
    "dataset_ends": loading("raise StopIteration", workers=0, ends=(DONE, IMPOSSIBLE)),
    "worker_raises": loading("raise ValueError('item 40')", workers=2, says="item 40"),
    "worker_killed": loading("os.kill(os.getpid(), signal.SIGKILL)", workers=2, says="worker"),
    "worker_exits": loading("os._exit(3)", workers=2, says="worker"),
    "worker_segfaults": loading("os.kill(os.getpid(), signal.SIGSEGV)", workers=2, says="worker"),
    "worker_hangs": Death(
        "", TIMEOUT, at=10**9, options=HANG, behind=LOADER.format(bad="time.sleep(900)", workers=2)
    ),
    "collate_raises": Death(
        "",
        RAISED,
        at=10**9,
        behind=LOADER.format(bad="pass", workers=0).replace(
            "batch_size=4,", "batch_size=4, collate_fn=lambda b: 1 / 0,"
        ),
    ),
    # -- the process ends
    "os_exit_7": Death("os._exit(7)"),
    "abort": Death("os.abort()", KILLED, says=("SIGABRT",)),
    "segfault": Death("import ctypes\nctypes.string_at(0)", KILLED, says=("SIGSEGV",)),
    **{
        name.lower(): Death(f"os.kill(os.getpid(), signal.{name})", KILLED, says=(name,))
        for name in """
            SIGKILL SIGTERM SIGFPE SIGBUS SIGILL SIGXCPU SIGALRM SIGUSR2 SIGQUIT
        """.split()
    },
    "sigpipe": Death("os.kill(os.getpid(), signal.SIGPIPE)", DONE),  # the interpreter ignores it
    "sighup": Death("os.kill(os.getpid(), signal.SIGHUP)", KILLED, says=("SIGHUP",)),
    "sigint": Death("os.kill(os.getpid(), signal.SIGINT)", RAISED, ends=(INTERRUPTED,)),
    "sigusr1": Death("os.kill(os.getpid(), signal.SIGUSR1)", DONE, ends=(KILLED,)),
    "c_stack": Death(
        "sys.setrecursionlimit(10**9)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
        KILLED,
        ends=(RAISED,),
    ),
    "exec": Death("os.execv('/bin/true', ['true'])"),
    "fork_goes_on": Death(
        "if os.fork() == 0:\n    for _ in range(5): step()\n    os._exit(0)\nelse:\n    os.wait()",
        DONE,
    ),
    "fork_falls_through": Death("os.fork()", DONE, ends=(RAISED,), quick=True),
    "fatal_error": Death("import ctypes\nctypes.pythonapi.Py_FatalError(b'owned')", KILLED),
    "rlimit_memory": Death(
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nkept = "
        "[bytearray(1 << 28) for _ in range(64)]",
        OOM,
        ends=(KILLED, RAISED),
    ),
    "rlimit_file_size": Death(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))",
        CUT_OFF,
        says=("cannot be written",),
    ),
    "rlimit_files": Death(
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
        CUT_OFF,
        says=("Too many open files",),
    ),
    "rlimit_cpu": Death(
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass", KILLED
    ),
    # -- it hangs
    "busy": Death("while True: pass", TIMEOUT, options=HANG),
    "hangs_in_c": Death("import ctypes\nctypes.PyDLL(None).pause()", TIMEOUT, options=HANG),
    "ignores_sigint": Death(
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, "
        "signal.SIG_IGN)\ntime.sleep(900)",
        TIMEOUT,
        options=HANG,
    ),
    "catches_everything": Death(
        "while True:\n    try: time.sleep(1)\n    except BaseException: pass", TIMEOUT, options=HANG
    ),
    "deadlock": Death(
        "lock = threading.Lock()\nlock.acquire()\nlock.acquire()", TIMEOUT, options=HANG
    ),
    "import_hangs": Death("time.sleep(900)", TIMEOUT, at=None, options=HANG, ends=(IMPOSSIBLE,)),
    "thread_stays": Death("threading.Thread(target=time.sleep, args=(900,)).start()", DONE),
    "atexit_hangs": Death("import atexit\natexit.register(time.sleep, 900)", DONE),
    "atexit_exits": Death("import atexit\natexit.register(os._exit, 9)", DONE, ends=(RAISED,)),
    # -- what it does to its process
    "chdir": Death("import tempfile\nos.chdir(tempfile.gettempdir())", DONE),
    "cwd_deleted": Death(
        "import shutil, tempfile\nd = tempfile.mkdtemp()\nos.chdir(d)\nshutil.rmtree(d)", DONE
    ),
    "cwd_not_utf8": Death("raise ValueError('in a strange folder')", outside="strange_folder"),
    "closes_files": Death("os.closerange(3, 512)", DONE, ends=(RAISED, KILLED), quick=True),
    "closes_streams": Death("os.close(0)\nos.close(1)\nos.close(2)", DONE),
    "stdout_raises": Death(
        "class Bad:\n    def write(self, t): raise ValueError\n    def flush(self): raise "
        "ValueError\nsys.stdout = sys.stderr = Bad()",
        DONE,
    ),
    "prints_much": Death("sys.stdout.write(('x' * 100 + chr(10)) * 500_000)", DONE),
    "prints_one_line": Death("sys.stdout.write('x' * 100_000_000)", DONE),
    "environment_cleared": Death("os.environ.clear()", DONE),
    "path_cleared": Death("sys.path.clear()", DONE),
    "warnings_raise": Death("import warnings\nwarnings.simplefilter('error')", DONE),
    "traces": Death("sys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)", DONE),
    "clock_patched": Death("time.perf_counter = time.time = time.monotonic = lambda: 0.0", DONE),
    "clock_raises": Death(
        "def gone(): raise OSError('no clock')\ntime.perf_counter = time.perf_counter_ns = gone",
        DONE,
    ),
    "umask": Death("os.umask(0o777)", DONE),
    "collector_frozen": Death("import gc\ngc.disable()\ngc.freeze()", DONE),
    "profiler_runs": Death(
        "global p\np = torch.profiler.profile()\np.__enter__()", DONE, ends=(RAISED,)
    ),
    "default_device_meta": Death("torch.set_default_device('meta')", RAISED, ends=(DONE,)),
    "signals_taken": Death(
        "for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD): "
        "signal.signal(n, lambda *a: None)",
        DONE,
    ),
    "out_deleted": Death(
        "import shutil, glob\nfor d in glob.glob('out*'): shutil.rmtree(d)",
        CUT_OFF,
        ends=(IMPOSSIBLE,),
    ),
    # -- what it leaves behind
    "leaves_process": Death("subprocess.Popen(['sleep', '987'])", DONE, quick=True),
    "leaves_session": Death(
        "subprocess.Popen(['sleep', '986'], start_new_session=True)", DONE, says=("sleep",)
    ),
    "leaves_pool": Death(
        "import multiprocessing\nglobal pool\npool = multiprocessing.get_context('fork').Pool(2)",
        DONE,
    ),
    # -- it never begins (one whose process vanishes has a report that says so: from outside, nothing tells it from a first step)
    "import_os_exits": Death("os._exit(4)", RAISED, at=None),
    "import_killed": Death("os.kill(os.getpid(), signal.SIGKILL)", KILLED, at=None),
    "first_step": Death("raise ValueError('at once')", RAISED, at=0, says=("at once",)),
    # -- what happens to the audit itself
    "terminated": Death("wait()", INTERRUPTED, outside="SIGTERM"),
    "hung_up": Death("wait()", INTERRUPTED, outside="SIGHUP"),
    "interrupted_twice": Death(
        "try: wait()\nexcept KeyboardInterrupt: os.rename('waiting', 'asked')\nwait()",
        INTERRUPTED,
        outside="SIGINT SIGINT",
    ),
    "terminated_while_judging": Death("", (130, ("completed",)), outside="SIGTERM while judging"),
    "in_background": Death(
        "wait()", INTERRUPTED, outside="in the background", says=("Ctrl-C or SIGTERM",)
    ),
    "no_hang_up": Death("wait()", DONE, outside="nohup"),
    "stdout_closed": Death("", DONE, shell=">&-"),
    "stderr_closed": Death("", DONE, shell="2>&-"),
    "all_closed": Death("", DONE, shell="<&- >&- 2>&-"),
    "stdout_full": Death("", (2, ("completed",)), shell=">/dev/full", quick=True),
    "stderr_full": Death("", DONE, shell="2>/dev/full"),
    "broken_pipe": Death("", DONE, shell="| true", ends=(IMPOSSIBLE,)),
    "folder_read_only": Death("", IMPOSSIBLE, options=("--out", "/proc/audit-out"), quick=True),
    "two_audits": Death("", DONE, outside="two audits"),
    "second_audit": Death("wait()", DONE, outside="a second audit"),
    "own_report": Death("", IMPOSSIBLE, outside="own report"),
}
