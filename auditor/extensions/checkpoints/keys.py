"""What the keys on the way to a value say about it: that it is a result, a setting, a bound or a
mask, or lies in a model. A key says so as a whole: ``log`` is a result, ``log_alpha`` is not.
"""

from __future__ import annotations

import re
from functools import lru_cache

from auditor.evidence.scans import Tally

Path = tuple[str | int, ...]

MODELS = frozenset({"model", "state_dict", "model_state_dict", "module", "net"})
"""Keys of weights, whatever else is among them."""

BOUNDS = frozenset(
    ["best", "worse", "max", "min", "maximum", "minimum", "clip", "threshold", "bound", "limit"]
)
"""Words of keys whose plain numbers may be infinite: nothing is beyond them."""

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
    rf"(?:.*_)?(?:{'|'.join(sorted(BOUNDS))})s?(?:_(?:abs|fitness|grad|len|model|norm|so_far|vals?"
    rf"|values?|{'|'.join(_WHAT.split())}))*"
)
"""Keys of tensors that are bounds: behind the word stands at most what is bounded."""

_MASK = re.compile(
    r"(?:.*_)?(?:masks?|causal|alibi|(?:attn|attention|causal|alibi|logits?|masked)_bias)"
    r"|bad_words(?:_ids|_bias)?|(?:begin_)?suppress(?:_tokens|_ids|_logits)?"
)
_SETTINGS = re.compile(
    r"(?:.*_)?(?:config|cfg|conf|hparams|hyper_?param(?:eter)?s|args|kwargs|opts?|options|settings"
    r"|meta(?:data)?)"
)
_SEPARATOR = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[/ -]+")


@lru_cache(4096)
def _in_words(key: str) -> str:
    """A key in small letters, its words between underscores."""
    return _SEPARATOR.sub("_", key[:200]).lower()


@lru_cache(4096)
def _is_result(key: str) -> bool:
    return _RESULT.fullmatch(_in_words(key)) is not None


def among_results(path: Path) -> bool:
    """True where a key on the way says that results are kept there (``metrics``, ``best_loss``)."""
    return any(isinstance(key, str) and _is_result(key) for key in path)


def among_settings(path: Path) -> bool:
    """True where a key on the way says that the program's settings are kept there."""
    return any(isinstance(key, str) and _SETTINGS.fullmatch(_in_words(key)) for key in path)


def in_model(path: Path) -> bool:
    """True where a key on the way is one of a model."""
    return any(key in MODELS for key in path)


def may_be_nan(path: Path, dimensions: int) -> bool:
    """Results are numbers, or lists of them; of those in a model only single numbers are some."""
    return among_results(path) and (dimensions == 0 or (dimensions == 1 and not in_model(path)))


def is_bound(path: Path) -> bool:
    """True for a key whose plain numbers may be infinite."""
    return not BOUNDS.isdisjoint(_last(path).split("_"))


def may_be_infinite(path: Path, tally: Tally | None, dimensions: int) -> bool:
    """True where something is infinite and may be so: bounds, in numbers or a list of them; masks,
    which forbid, beside what they let pass.
    """
    if tally is None or tally.nan or not tally.nonfinite:
        return False
    masks = not tally.positive_inf and tally.low is not None
    key = _last(path)
    bound, mask = _BOUND.fullmatch(key) is not None, _MASK.fullmatch(key) is not None
    return (bound and dimensions <= 1) or (mask and masks)


def _last(path: Path) -> str:
    """The last part of the last key, in words."""
    last = next((key for key in reversed(path) if isinstance(key, str) and key), "")
    return _in_words(last.rpartition(".")[2])
