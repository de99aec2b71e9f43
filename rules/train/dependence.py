"""TRAIN011 to 13, 21 to 27, 29 to 35: what depends on what it must not, or on nothing."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from itertools import starmap
from typing import ClassVar

from auditor.evidence.source.files import Source, name_of, the_only, unparsed
from auditor.evidence.table import Rows, by_line
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule
from auditor.syntax.index import nodes_in

from ..lines import places_of
from .rows import DependenceRow, UnreadRow

ORDER = {
    "softmax": "Give it the dimension whose values should sum to 1: dim=-1 for most scores.",
    "log_softmax": "Give it the dimension of the classes: dim=-1 for most scores.",
    "view": "Swap dimensions with transpose() or permute(); view() only cuts the same numbers "
    "into other rows.",
    "lstm": "Pass batch_first=True if the batch comes first, or give it x.transpose(0, 1).",
    "layer_norm": "Leave the batch dimension out of normalized_shape.",
}
"""What to do, by the function."""

NAMED = {
    "multi_head_attention_forward": "multi-head attention",
    "scaled_dot_product_attention": "attention",
    "softmax": "the softmax",
    "getitem": "the part that is kept here",
    "narrow": "the part that is kept here",
    "cross_entropy": "the model",
    "nll_loss": "the model",
    **dict.fromkeys(("and", "or", "bitwise_and", "logical_and", "logical_or"), "the mask"),
}
"""Words for a function; of a loss no call was seen where it begins."""

MASKED = frozenset(
    "masked_fill where softmax scaled_dot_product_attention multi_head_attention_forward".split()
)
"""Functions that a causal mask is given to."""

SAME = {
    "reshape": "view",
    "unflatten": "view",
    "gru": "lstm",
    "rnn_tanh": "lstm",
    "rnn_relu": "lstm",
    "multi_head_attention_forward": "lstm",
    "rms_norm": "layer_norm",
}


LAYERS = {"lstm": ("LSTM", "GRU", "RNN", "MultiheadAttention", "TransformerEncoderLayer")}
"""Classes that take ``batch_first``, by the function that they call."""

MAY_BE_MEANT = frozenset({"statistics", "soft", "end"})
"""Kinds that some programs have on purpose: notes."""


class DependenceSays(Rule):
    """A subclass gives :attr:`SAID`, and ``advice``, :attr:`INSTEAD` or :meth:`instead`."""

    severity = Severity.WARNING
    since = "0.3"

    SAID: ClassVar[dict[str, str]]
    """What is wrong at the line, and what follows from it, by the kind of its rows."""
    INSTEAD: ClassVar[dict[str, str]] = {}
    """What to do, where ``advice`` does not say it, by the same."""

    def said(self, row: DependenceRow, **words: str) -> str:
        """What is wrong at this line; ``words`` are further ones of the text."""
        named = NAMED.get(row.function, row.function)
        return self.SAID[row.kind].format(row=row, named=named, **words)

    def instead(self, row: DependenceRow) -> str:
        """What to do at this line, where ``advice`` does not say it."""
        return self.INSTEAD.get(row.kind, "").format(row=row)

    def place(self, row: DependenceRow, source: Source) -> Site:
        """The line to change."""
        return row.site

    def detect(self, dependence: Rows[DependenceRow], source: Source) -> Iterator[Finding]:
        for kind in self.SAID:
            for rows in by_line(row for row in dependence if row.kind == kind):
                instead, site = self.instead(rows[0]), self.place(rows[0], source)
                yield Finding(
                    site,
                    self.said(rows[0]),
                    steps=len({row.step for row in rows}),
                    per_step=1.0,
                    severity=Severity.NOTE if kind in MAY_BE_MEANT else None,
                    places=places_of(site, rows[0].site),
                    remedy=Remedy(instead) if instead else None,
                )


class SamplesMix(DependenceSays):
    """A sample's output depends on other samples of its batch."""

    code = "TRAIN011"
    SAID: ClassVar = {
        "samples": "{named} mixes samples: the output of the last sample depends on {reached} "
        "others in its batch",
        "statistics": "the {row.function} of a whole batch scales or shifts each of its {row.of} "
        "samples: a sample's output depends on the others, also in an evaluation",
        "documents": "attention mixes documents that are packed into one row: the first token of a "
        "document sees {row.n} of the {row.of} before it, although positions start again there",
        "readout": "the softmax goes over the rows of all {row.of} samples, and its shares are "
        "added up for each sample: a sample's output depends on the others in its batch",
        "neighbors": "{row.function} searches the rows of all samples: {row.n} of {row.of} rows get "
        "rows of other samples before they are added up for each sample",
    }
    INSTEAD: ClassVar = {
        "documents": "Let the mask also compare the documents: ids[:, :, None] == ids[:, None, :].",
        "neighbors": "Search within each sample: distances to rows of other samples must be infinite.",
        "readout": "Divide exp(scores) by its sum within each sample (index_add of the same index).",
        "statistics": "Give it the dimensions of one sample, or use constants of the training set.",
    }

    def place(self, row: DependenceRow, source: Source) -> Site:
        """A layer that takes the batch for the sequence is repaired where it is made."""
        names = LAYERS.get(SAME.get(row.function, row.function), ())
        made = source.calls_of(*names if row.kind == "samples" else ())
        form = (
            call for call in made if all(each.arg != "batch_first" for each in call[1].keywords)
        )
        return the_only(starmap(source.site_of, form)) or row.site

    def said(self, row: DependenceRow, **words: str) -> str:
        others = row.of - 1
        reached = f"all {others}" if row.n == others else f"{row.n} of the {others}"
        return super().said(row, reached=reached, **words)

    def instead(self, row: DependenceRow) -> str:
        name = SAME.get(row.function, row.function)
        return super().instead(row) or ORDER.get(name, "Do not mix over the batch dimension.")


COMBINED = (
    "Combine the attn_mask that is given here with a causal one (mask & torch.ones(t, "
    "t).tril().bool()): is_causal=True and a mask exclude each other."
)


FILTERS = (
    "convolve rolling shift avg_pool1d conv1d uniform_filter1d gaussian_filter1d savgol_filter filtfilt "
    "detrend seasonal_decompose STL"
).split()
"""Functions of NumPy, pandas, SciPy, statsmodels and torch that filter a series."""

BACKWARD = (
    "Use a filter that looks back only (a trailing window, padding on the left alone), or compute the "
    "channel from the values of one window."
)


OVER_TIME = frozenset(
    """
    mean sum std var std_mean var_mean norm vector_norm amax amin max min group_norm instance_norm
    layer_norm rms_norm normalize avg_pool1d adaptive_avg_pool1d
    """.split()
)
"""Functions that are wrong where they go over positions."""

UP_TO_HERE = (
    "Take it over what a position may know: over the channels of each position, or over the values up "
    "to it (x.cumsum(1) / counts)."
)


class SeesTheNextToken(DependenceSays):
    """A language or time-series model sees what it has to predict."""

    code = "TRAIN012"
    SAID: ClassVar = {
        "future": "{named} lets a position see its target, which is the next position: {row.n} of "
        "the {row.of} after it reach its output",
        "added": "{named} adds a causal mask of ones and zeros to its scores, which hides nothing: "
        "all {row.of} positions after the first one are seen by it",
        "feature": "channel {row.of} of the input is a filter over time that reaches {row.n} steps "
        "ahead: the end of each window holds values that the model has to predict",
        "horizon": "the input is scaled by the {row.function} of a whole window: {row.n} of its "
        "{row.of} positions are what the model has to predict",
    }
    INSTEAD: ClassVar = {
        "feature": BACKWARD,
        "horizon": "Scale by the part that the model is given.",
    }
    advice = (
        "Give attention a causal mask (is_causal=True, or -inf above the diagonal before the "
        "softmax). Recurrent layers must not be bidirectional, convolutions not padded on the "
        "right."
    )

    def place(self, row: DependenceRow, source: Source) -> Site:
        """A mask that is off by a diagonal or two, or of the wrong sign, is repaired where it is made."""
        file = row.site.file
        if row.kind == "feature":
            filters = (
                source.site_of(*each)
                for each in source.calls_of(*FILTERS)
                if getattr(source.index(each[0]).scope_at(each[1].lineno), "name", "") != "forward"
            )
            return the_only(filters) or row.site
        made = [
            call
            for name in ("tril", "triu")
            for call in source.index(file).calls.get(name, ())
            if len(call.args) > 1 or call.keywords
        ]
        if row.kind == "added":
            return the_only(starmap(source.site_of, source.calls_of("tril", "triu"))) or row.site
        filled_here = row.function in ("masked_fill", "where") and row.n == row.of  # or its sign
        masked = row.function in MASKED or NAMED.get(row.function) == "the mask"
        compared = _compared_positions(source, row.site) if masked and not filled_here else None
        if compared is not None:
            return compared
        off_by_few = row.function in MASKED and row.n < row.of / 2 and len(made) == 1
        if off_by_few:
            return source.site_of(file, made[0])
        given = (each.arg for call in source.calls_at(row.site) for each in call.keywords)
        filled = [
            source.site_of(file, call)
            for call in source.index(file).calls.get("masked_fill", ())
            if "inf" in unparsed(call.args[-1])
        ]
        return (the_only(filled) if "attn_mask" in given else None) or row.site

    def instead(self, row: DependenceRow) -> str:
        combined = COMBINED if "attn_mask" in row.site.text else ""
        over_time = UP_TO_HERE if row.kind == "future" and row.function in OVER_TIME else ""
        return super().instead(row) or combined or over_time


def _compared_positions(source: Source, site: Site) -> Site | None:
    """The only comparison of each position with each other, ``a[:, None] >= a[None, :]``, in the
    function that makes the mask which the line reads.
    """
    index = source.index(site.file)
    read = {
        name_of(node)
        for call in source.calls_at(site)
        for given in (*call.args, *(each.value for each in call.keywords))
        for node in nodes_in(given, ast.Name, ast.Attribute)
    } or {name_of(node) for node in index.on(site.line, ast.Name, ast.Attribute)}
    made = [(name_of(to), node.value) for node in index.of(ast.Assign) for to in node.targets]
    made += [
        (str(call.args[0].value), call.args[1])
        for call in index.calls.get("register_buffer", ())
        if len(call.args) > 1 and isinstance(call.args[0], ast.Constant)
    ]
    functions: set[ast.AST] = set()
    for name in read:
        values = [value for known, value in made if known == name]
        around = [each for each in values if index.scope_of(each) in index.around(site.line)]
        for value in around or values:
            called = name_of(value.func) if isinstance(value, ast.Call) else ""
            own = [each for each in index.functions if each.name == called]
            functions.update(own or (index.scope_of(value),))
    return the_only(
        source.site_of(site.file, node)
        for node in index.of(ast.Compare)
        if index.scope_of(node) in functions
        if isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        if all(
            isinstance(each, ast.Subscript) and "None" in unparsed(each.slice)
            for each in (node.left, *node.comparators)
        )
    )


class InputUnread(Rule):
    """An input of the step has no effect: no function reads it, or a write goes into a copy."""

    code = "TRAIN013"
    severity = Severity.WARNING
    since = "0.3"

    SAID: ClassVar = {
        "parameter": "{function}() is given {name} and never reads it, nor does anything else in "
        "the step",
        "constant": "floor division gives the same number for all values on each step: what is "
        "computed from it does not depend on them",
        "copy": "indexing with a tensor or a list makes a copy: {function}() changes the copy of "
        "{name}, and nothing else",
    }
    REMEDY: ClassVar = {
        "parameter": "Use it where it belongs (a mask before the softmax, weights before the "
        "mean), or do not pass it.",
        "constant": "Use / for a share; // needs a divisor below the largest value.",
        "copy": "Assign to the indexed tensor: x[index] = value.",
    }

    def detect(self, unread: Rows[UnreadRow]) -> Iterator[Finding]:
        for row in {(row.site, row.name): row for row in unread}.values():
            yield Finding(
                row.site,
                self.SAID[row.kind].format(function=row.function, name=row.name),
                per_step=1.0,
                remedy=Remedy(self.REMEDY[row.kind]),
            )


class ReshapedForTransposed(DependenceSays):
    """A reshape is used where a transpose is meant: values end up in the wrong rows."""

    code = "TRAIN021"
    SAID: ClassVar = {
        "order": "{row.function} exchanges the sizes of dimensions {row.n} and {row.of} but keeps "
        "the numbers in their order in memory: each row mixes the values of several original rows",
    }
    INSTEAD: ClassVar = {
        "order": "Use transpose({row.n}, {row.of}), and reshape only after it to join dimensions."
    }


class TargetGetsGradients(DependenceSays):
    """A target that is made of the network's own output gets gradients."""

    code = "TRAIN022"
    SAID: ClassVar = {
        "target": "the target is the network's own output (data + factor * output) and gets "
        "gradients: the step also moves the target toward the prediction",
        "advantage": "the advantage (data - value) gets gradients: the policy's loss also moves "
        "the values, away from their returns",
        "soft": "the target of a divergence gets gradients: the step also moves the teacher's "
        "output toward the student's",
    }
    advice = "Compute the target under torch.no_grad(), or call .detach() on it."


class WeightsAfterTheMean(DependenceSays):
    """Weights of samples are applied after the mean over the samples."""

    code = "TRAIN023"
    SAID: ClassVar = {
        "weights": "the loss is one number before it is multiplied by {row.of} weights: they "
        "cannot make one sample count more than another",
    }
    advice = (
        "Weigh the losses before their mean: make the loss with reduction='none', and use (loss * "
        "weights).sum() / weights.sum()."
    )


class SoftmaxOverOneValue(DependenceSays):
    """A softmax over one value is 1, whatever the value is."""

    code = "TRAIN024"
    SAID: ClassVar = {
        "single": "{row.function} goes over a dimension of size 1: the result is the same for all "
        "inputs, and layers that feed only it are not trained",
        "itself": "a tensor is divided by its own {row.function} over a dimension of size 1: all "
        "{row.of} results are 1, whatever it holds",
    }
    INSTEAD: ClassVar = {"itself": "Take the mean over the dimension that has several values."}
    advice = (
        "Take the softmax over the alternatives: over their dimension, or by group where an index "
        "groups them (edges of a node). For two classes with one score train with "
        "binary_cross_entropy_with_logits, and apply sigmoid only for predictions."
    )


class SoftmaxOverAnotherAxis(DependenceSays):
    """A softmax goes over another dimension than its targets."""

    code = "TRAIN025"
    SAID: ClassVar = {
        "axis": "{row.function} goes over dimension {row.n}, but the targets sum to 1 over "
        "dimension {row.of}: the classes do not compete",
    }
    INSTEAD: ClassVar = {"axis": "Use dim={row.of}."}


class ShiftTakenAway(DependenceSays):
    """A norm or a softmax takes away what was added to its input."""

    code = "TRAIN026"
    SAID: ClassVar = {
        "shift": "{row.function} subtracts the mean of each channel or row, and the shift that is "
        "added before it is constant there: the shift has no effect, and the layers that compute "
        "it are not trained",
        "bias": "what is added to the scores is the same for all values of the softmax, which "
        "cancels it: it has no effect, and the layers that compute it are not trained",
    }
    INSTEAD: ClassVar = {
        "bias": "Give it a value for each alternative or key, along the softmax's dimension: "
        "bias[..., None, :] for [..., None]."
    }
    advice = "Add it after the norm, as FiLM and adaptive norms do: norm(x) * (1 + scale) + shift."


class EndNeverATarget(DependenceSays):
    """The end of a text is never a target: the loss ignores it as padding."""

    code = "TRAIN027"
    SAID: ClassVar = {
        "end": "the end of a text is never a target: token {row.n} ends all {row.of} rows and pads "
        "them, and the loss ignores it: the model does not learn where to stop",
    }
    advice = (
        "Ignore by the mask or the lengths of the batch, not by the token; or pad with a token "
        "that ends no text."
    )

    def place(self, row: DependenceRow, source: Source) -> Site:
        """Where the padding's token is set to what is ignored, or the loss that ignores it."""
        by_token = [
            source.site_of(file, node)
            for file, node in source.every(ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Compare)
        ]
        by_token += [
            source.site_of(file, call)
            for file, call in source.calls_of("masked_fill", "masked_fill_", "where")
            if "-100" in map(unparsed, call.args)
            if any(isinstance(each, ast.Compare) for each in call.args)
        ]
        own = "ignore_index" in row.site.text and "-100" not in row.site.text
        made = the_only(
            source.site_of(file, node)
            for file, node in source.every(ast.Assign)
            if "ignore_index" in (value := unparsed(node.value)) and "-100" not in value
            if f"{unparsed(node.targets[0]).rpartition('.')[2]}(" in row.site.text
        )
        return row.site if own else made or the_only(by_token) or row.site


class WrongBackward(DependenceSays):
    """The backward of an autograd.Function is not the derivative of its forward."""

    code = "TRAIN029"
    SAID: ClassVar = {
        "backward": "the backward of {row.function} is not the derivative of its forward: along "
        "random directions it is off by {row.n} %",
    }
    advice = (
        "Compare them with torch.autograd.gradcheck(Function.apply, inputs in double precision), "
        "and derive the missing term."
    )

    def place(self, row: DependenceRow, source: Source) -> Site:
        """What the backward returns, if it has one return statement."""
        returned = (
            source.site_of(file, node)
            for file, kind in source.every(ast.ClassDef)
            if kind.name == row.function
            for method in kind.body
            if isinstance(method, ast.FunctionDef) and method.name == "backward"
            for node in nodes_in(method, ast.Return)
        )
        return the_only(returned) or row.site


class RowsStaySorted(DependenceSays):
    """Rows of a batch are sorted, but compared with targets in the original order."""

    code = "TRAIN030"
    SAID: ClassVar = {
        "sorted": "the rows of the batch are sorted here and never put back: {row.of} of {row.n} "
        "outputs are compared with the targets of other rows",
    }
    advice = (
        "Put the outputs back: output[order.argsort()], or sort the targets as well; "
        "pack_padded_sequence(..., enforce_sorted=False) sorts and puts back by itself."
    )


class RatioOfOtherActions(DependenceSays):
    """The old log-probabilities of a ratio are of other actions, or follow the policy as well."""

    code = "TRAIN031"
    SAID: ClassVar = {
        "ratio": "{row.n} of {row.of} old log-probabilities that are picked here belong to other "
        "actions: the rollout buffer holds those of the ratio's actions at other indices",
        "cancelled": "both sides of a difference or ratio of {row.of} numbers are equal and get the "
        "same gradients, which cancel: it trains no parameter",
    }
    INSTEAD: ClassVar = {"cancelled": "Detach the old ones, or compute them under torch.no_grad()."}
    advice = "Pick observations, actions and old log-probabilities by the same index."


class RowsChooseThemselves(DependenceSays):
    """A contrastive loss has each row as a candidate for itself."""

    code = "TRAIN032"
    SAID: ClassVar = {
        "self": "each of {row.of} rows is compared with itself, too, and is never its own target: "
        "its largest similarity counts against the positive",
    }
    advice = "Leave the diagonal out: scores.fill_diagonal_(-inf) before cross_entropy."


class IgnoredIsTrained(DependenceSays):
    """One part of a loss ignores targets, and another part trains them as a class."""

    code = "TRAIN033"
    SAID: ClassVar = {
        "void": "{row.n} of {row.of} targets that cross_entropy ignores are given a class here: "
        "another part of the loss trains the outputs there",
    }
    advice = "Multiply outputs and targets of the other part by target != ignore_index as well."


class WithoutGradient(DependenceSays):
    """The loss reads a sample or a derivative that gives the parameters behind it no gradient."""

    code = "TRAIN034"
    SAID: ClassVar = {
        "sample": "{called} gives no gradient: the loss is computed from the sample, and only its "
        "other parts (a divergence from a prior) train the parameters of the distribution",
        "derivative": "the derivative is taken without create_graph and enters the loss as a "
        "constant: its term trains none of the parameters that the derivative depends on",
    }
    INSTEAD: ClassVar = {
        "derivative": "Give it create_graph=True; detach it where it is meant as a constant."
    }
    advice = "Use rsample(), or mean + scale * torch.randn_like(scale)."

    def said(self, row: DependenceRow, **words: str) -> str:
        called = row.function if row.function == "torch.normal" else f"sample() of {row.function}"
        return super().said(row, called=called, **words)


class PromptOfPaddedRows(DependenceSays):
    """Prompts are left out from the first column on, although rows are padded on the left."""

    code = "TRAIN035"
    SAID: ClassVar = {
        "prompt": "{row.n} of {row.of} rows are padded on the left, and their prompts are left out "
        "from the first column on, where the padding is: the prompt, or its end, stays among the "
        "targets",
    }
    advice = "Begin behind the padding: labels[row, start : start + len(prompt)] = -100."

    def detect(self, dependence: Rows[DependenceRow], source: Source) -> Iterator[Finding]:
        """Only with the one line that ignores from the first column on."""
        cut = the_only(
            source.site_of(file, node)
            for file, node in source.every(ast.Assign)
            if any(map(_from_the_first_column, node.targets))
        )
        for finding in super().detect(dependence, source) if cut is not None else ():
            yield replace(finding, site=cut, places=places_of(cut, finding.site))


def _from_the_first_column(target: ast.expr) -> bool:
    """``labels[row, :len(prompt)]``."""
    index = target.slice if isinstance(target, ast.Subscript) else None
    last = index.elts[-1] if isinstance(index, ast.Tuple) and len(index.elts) == 2 else None
    counted = isinstance(last, ast.Slice) and last.lower is None and last.upper is not None
    return counted and any(each in unparsed(target).lower() for each in ("label", "target"))
