"""Codes of rules that left, and what tells of the same thing now: none of them is used again."""

from __future__ import annotations

from collections.abc import Iterable

LEFT = {
    "CFG002": "write bias=False before a batch norm",
    "CKPT010": "CKPT006 names an old rate that a resume brings back, CKPT005 missing state",
    "COMP007": "torch logs why: TORCH_LOGS=cudagraphs",
    "COMP008": "set torch._dynamo.config.skip_nnmodule_hook_guards = False, and hooks run",
    "COMP011": "DIST003 measures what no backward hides; TORCH_LOGS=ddp_graphs shows the graphs",
    "DIST006": "torch itself warns where find_unused_parameters=True finds none",
    "DIST010": "a trace shows each call, and DIST003 what they take",
    "DIST014": "a trace shows each broadcast, and DIST003 what they take",
    "DIST015": "torch.distributed.checkpoint saves what ranks share once",
    "DIST016": "use torch.nn.SyncBatchNorm where a rank has few samples",
    "GRAPH007": "GRAPH002 names retain_graph=True; without it torch raises at the second backward",
    "KERN004": "nsys shows launches that wait for the queue",
    "KERN008": "KERN003 measures launches that come too slowly",
    "MEM012": "MEM003 says after how many steps growing memory is full",
    "MEM017": "MEM003 tells of memory that grows step over step",
    "SYNC008": "nsys analyze --rule cuda_memset_sync",
    "TIME002": "the page draws the time of each step",
}
"""Each of 0.3."""

KNOBS = {
    "AMP006": "fewest interval share",
    "DATA007": "busy costliest handed_us noticed restarted restarts several",
    "DIST002": "least",
    "DIST005": "ranks",
    "DIST007": "replicas",
    "DIST009": "ranks",
    "DIST011": "sizes",
    "DIST013": "least ranks",
    "KERN001": "least_kernels",
    "KERN002": "least_kernels",
    "KERN003": "least_kernels",
    "KERN006": "body body_of_many many noted",
    "KERN007": "elements",
    "MEM003": "counted_kib device_share host_even host_returned host_step_kib trifle_kib "
    "unended_kib",
    "MEM005": "lines",
    "MEM006": "lines",
    "MEM008": "grid known late least_mib padded small_share times wide_share",
    "MEM015": "lines",
    "TRAIN004": "least_attended",
}
"""Knobs that left in 0.3, by their rule's code."""


def sentence(code: str) -> str:
    """What to say of one."""
    return f"{code} left in 0.3: {LEFT[code]} (docs/left.md)"


def among(words: Iterable[str]) -> tuple[str, ...]:
    """Those of these words that are such codes, each once."""
    return tuple(dict.fromkeys(word for word in words if word in LEFT))
