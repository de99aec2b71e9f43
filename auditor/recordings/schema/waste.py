"""Rows about work that is thrown away."""

from __future__ import annotations

from typing import Annotated

import msgspec

from auditor.model import Site
from auditor.recordings.row import PassRow, doc


class ThrownRow(PassRow, kw_only=True):
    """When the pass is over: one row for each place whose work nobody needed, and one about the
    whole.
    """

    part = "thrown"
    when = "numbers"

    what: Annotated[
        str,
        doc(
            "`all`: the whole; `gradient`: cleared before an optimizer read it; `detach`: the same, "
            "and the place is where the graph could end; `result`: nobody read it; `copy`: the same "
            "of a copy to the device; `constant`: the same on every step; `repeat`: computed twice; `again`: "
            "the same, with a backward between the two that may have freed the first graph"
        ),
    ]
    at: Annotated[int | None, doc("the line: a number in `sites`; null of the whole")] = None
    lines: Annotated[list[int], doc("further lines of the same")] = msgspec.field(
        default_factory=list
    )
    other: Annotated[
        int | None,
        doc("the backward of a `detach`; of a `repeat` or `again` the line that did it before"),
    ] = None
    steps: Annotated[int, doc("on how many")] = 0
    operators: Annotated[float, doc("operators per step")] = 0.0
    share: Annotated[float, doc("of the work of all operators: bytes moved and operations")] = 0.0
    nbytes: Annotated[
        int, doc("bytes of the results per step; of the whole: copied to the device")
    ] = 0
    op: Annotated[str, doc("the operator with the most work; of copies what was copied")] = ""
    owner: Annotated[str, doc("of gradients: the class of the optimizer")] = ""
    names: Annotated[list[str], doc("of gradients: the first parameters")] = msgspec.field(
        default_factory=list
    )
    n: Annotated[int, doc("of gradients: parameters")] = 0
    graph: Annotated[bool, doc("a graph was recorded for it")] = False
    products: Annotated[
        int, doc("products of matrices, convolutions and attentions among the operators per step")
    ] = 0
    blind: Annotated[str, doc("of the whole: why nothing can be said")] = ""
    trained: Annotated[bool, doc("of the whole: an optimizer stepped")] = False

    @property
    def before(self) -> Site | None:
        """The line of `other`."""
        return self.site_of(self.other)

    @property
    def others(self) -> tuple[Site, ...]:
        """The further lines, each once."""
        sites = {site.place: site for site in map(self.site_of, self.lines)}
        return tuple(site for site in sites.values() if site.place != self.own.place)

    @property
    def own(self) -> Site:
        """The line of what is not the whole."""
        return self.site_of(self.at or 0)
