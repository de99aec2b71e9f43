"""What the keys on the way to a value say about it: that it is a result, a setting, a bound or a mask.

A key says so as a whole: ``log`` is a result, ``log_alpha`` is not.
"""

import re
from functools import lru_cache

Path = tuple[str | int, ...]

_WHEN = """
    best last final current running avg average total train training val valid validation test
    testing eval evaluation dev epoch step batch
"""
_WHAT = """
    loss losses metric metrics score scores stats statistics history log logs acc accuracy error
    psnr ssim iou miou f1 auc auroc perplexity ppl bleu wer cer mse rmse mae reward rewards
    grad_norm
"""
_RESULT = re.compile(
    rf"(?:(?:{'|'.join(_WHEN.split())})_)*(?:{'|'.join(_WHAT.split())})"
    r"(?:_(?:history|logs?|list|curve))?|early_?stop(?:ping|per)?|callbacks?"
)
_BOUND = re.compile(
    r"(?:.*_)?(?:best|worse|max|min|maximum|minimum|clip|threshold|bound|limit)s?"
    r"(?:_(?:abs|fitness|grad|len|model|norm|so_far|vals?"
    rf"|values?|{'|'.join(_WHAT.split())}))*"
)
"""Behind the word stands at most what is bounded."""

_MASK = re.compile(
    r".*mask.*|(?:.*_)?(?:causal|alibi|(?:attn|attention|causal|alibi|logits?|masked)_bias)"
    r"|bad_words(?:_ids|_bias)?|(?:begin_)?suppress(?:_tokens|_ids|_logits)?"
)
_SETTINGS = re.compile(
    r"(?:.*_)?(?:config|cfg|conf|hparams|hyper_?param(?:eter)?s|args|kwargs|opts?|options|settings"
    r"|meta(?:data)?)"
)
MODELS = frozenset({"model", "state_dict", "model_state_dict", "module", "net"})
"""Keys of weights."""

_SEPARATOR = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[/ -]+")


@lru_cache(4096)
def _in_words(key: str) -> str:
    return _SEPARATOR.sub("_", key[:200]).lower()


@lru_cache(4096)
def _is_result(key: str) -> bool:
    return _RESULT.fullmatch(_in_words(key)) is not None


def among_results(path: Path) -> bool:
    """True if a key on the way says that results are kept there (``metrics``, ``best_loss``)."""
    return any(isinstance(key, str) and _is_result(key) for key in path)


def among_settings(path: Path) -> bool:
    """True if a key on the way says that the program's settings are kept there."""
    return any(isinstance(key, str) and _SETTINGS.fullmatch(_in_words(key)) for key in path)


def is_bound(path: Path) -> bool:
    """True for a key of what may be infinite, since nothing is beyond it."""
    return _BOUND.fullmatch(_last(path)) is not None


def is_mask(path: Path) -> bool:
    """True for a key of what forbids with minus infinity."""
    return _MASK.fullmatch(_last(path)) is not None


def _last(path: Path) -> str:
    last = next((key for key in reversed(path) if isinstance(key, str) and key), "")
    return _in_words(last.rpartition(".")[2])


def printable(text: str) -> str:
    """A word of the file that can be shown: controls and half characters are escaped."""
    return text if text.isprintable() else ascii(text)[1:-1]


def named(path: Path) -> str:
    """A path in words: ``optimizer.state[3].exp_avg``."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return printable(text.removeprefix("."))[:200] or "(the file)"
