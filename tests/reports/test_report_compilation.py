"""The section about torch.compile: in words, in the page and the terminal, and from a stranger."""

from dataclasses import replace

from auditor.reports.terminal import Terminal

from auditor.judging.catalogue import renderer
from auditor.model import Site
from auditor.model.sections import Compilation, CompiledPart, Gain
from tests.reports import golden_report as golden

PART = CompiledPart(Site("train.py", 7, "", "net = torch.compile(net)"), "Net", "mode='x'", 30, 40)
FOUND = Compilation(5, 2_000_000.0, 2, 1, 3, (PART,), Gain(4000.0, 3500.0, 4500.0, 20_000.0))


def report(found=FOUND, **more):
    return replace(golden.silent_report(), compilation=found and replace(found, **more))


def test_a_strangers_report_cannot_steer():
    part = replace(PART, what="\x1b[31m<b>", options="<i>\n\x1b]0;", site=Site("<u>", 1, "", ""))
    made = report(parts=(part,), gain=Gain(float("nan"), float("inf"), 0.0, float("nan")))
    page, shown = renderer("html").render(made), Terminal().render(made)
    for bad in ("<b>", "<i>", "<u>", "\x1b"):
        assert bad not in page.partition('id="compilation"')[2].partition("</section>")[0]
    assert "\x1b" not in shown
