"""Figures in Chromium: values by pointer and keys, zoom, tables; plotly where it was asked for."""

from dataclasses import replace

import pytest

from auditor.model.charts import Layers, Tone
from tests.reports import golden_attack
from tests.reports import golden_report as golden
from tests.reports.browsing import NEEDS_CHROMIUM, wait, wake_charts

pytestmark = [NEEDS_CHROMIUM, pytest.mark.full]

PLOTLY = replace(golden.rich_report(), interactive_figures=True)

_TIP = "return document.querySelector(arguments[0] + ' .tip')"
_LABELS = (
    "return [...document.querySelectorAll(arguments[0] + ' .x span')].map((one) => one.textContent)"
)


def _keys(browser, figure, *keys):
    """What a figure tells after so many keys."""
    over = browser.find_element("css selector", f"{figure} .over")
    browser.execute_script("arguments[0].focus()", over)
    over.send_keys(*keys)
    return str(browser.execute_script(f"{_TIP}.textContent", figure))


def _at(browser, figure, across, down=0.5):
    """A chain of actions whose pointer stands at a place of a figure, in shares of it."""
    from selenium.webdriver import ActionChains

    over = browser.find_element("css selector", f"{figure} .over")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)
    size = over.size
    x, y = (across - 0.5) * size["width"], (down - 0.5) * size["height"]
    return ActionChains(browser).move_to_element_with_offset(over, round(x), round(y))


def test_arrow_keys_read_each_step(show):
    from selenium.webdriver.common.keys import Keys

    browser = show(golden.rich_report())
    series = golden.rich_report().series[0]
    first = _keys(browser, "#chart-1", Keys.ARROW_RIGHT)
    assert first.startswith(f"step {series.x[0]:g}") and series.name in first
    away = sorted(
        {x for each in golden.rich_report().series if each.unit == series.unit for x in each.x}
    )
    told = _keys(browser, "#chart-1", *[Keys.ARROW_RIGHT] * 5)
    assert told.startswith(f"step {away[5]:g}")
    back = _keys(browser, "#chart-1", Keys.ARROW_LEFT)
    assert back.startswith(f"step {away[4]:g}")
    assert browser.get_log("browser") == []


def test_the_pointer_reads_a_bar_and_says_where_there_is_none(show):
    browser = show(golden.rich_report())
    rows = len(browser.execute_script("return document.querySelectorAll('#parts .y span')"))
    _at(browser, "#parts", 0.1, 0.5 / rows).perform()
    told = browser.execute_script(f"{_TIP}.textContent", "#parts")
    assert told.startswith("mean: host, ") and "aten::linear, 9 ms" in told
    _at(browser, "#parts", 0.999, 0.5 / rows).perform()
    assert "nothing there" in browser.execute_script(f"{_TIP}.textContent", "#parts")
    _at(browser, "#parts", 0.5, 1.5 / rows).perform()
    assert "gemm" in browser.execute_script(f"{_TIP}.textContent", "#parts")


def test_memory_is_told_layer_by_layer_from_the_top(show):
    browser = show(golden.rich_report())
    _at(browser, "#memory-1", 3.5 / 11).perform()
    rows = browser.execute_script(
        f"{_TIP}.innerText.split('\\n').map((one) => one.trim()).filter(Boolean)", "#memory-1"
    )
    assert rows[0] == "3 ms"
    assert rows[1:] == [
        *("all other lines", "0.01563 GiB", "trainer.py:140 step", "1.5 GiB"),
        *("model.py:31 __init__", "2 GiB", "reserved", "4 GiB"),
    ]


def test_a_stretch_is_looked_at_closely_by_dragging_and_all_by_escape(show):
    from selenium.webdriver.common.keys import Keys

    browser = show(golden.rich_report())
    whole = browser.execute_script(_LABELS, "#memory-1")
    _at(browser, "#memory-1", 0.25).click_and_hold().move_by_offset(200, 0).release().perform()
    box = browser.execute_script(
        "return document.querySelector('#memory-1 .plot svg').viewBox.baseVal.width"
    )
    assert 100 < box < 500
    closer = browser.execute_script(_LABELS, "#memory-1")
    assert closer != whole and float(closer[0]) > 2
    _keys(browser, "#memory-1", Keys.ESCAPE)
    assert browser.execute_script(_LABELS, "#memory-1") == whole
    assert browser.get_log("browser") == []


def test_buttons_zoom_and_a_closer_look_draws_all_points(show):
    many = 4000  # of which the picture has one for each column of a wide screen
    report = golden.rich_report()
    long = replace(
        report.series[0],
        x=tuple(map(float, range(many))),
        y=tuple(float(number * 7919 % 1000 + 1) for number in range(many)),
    )
    browser = show(replace(report, series=(long,)))
    points = "return document.querySelector('#chart-1 .plot svg .line').getAttribute('d').split('L').length"
    still = browser.execute_script(points)
    assert still < 1300
    browser.execute_script("document.querySelector('#chart-1').scrollIntoView()")
    plus, minus, whole = browser.find_elements("css selector", "#chart-1 .tools .tool")
    width = "return document.querySelector('#chart-1 .plot svg').viewBox.baseVal.width"
    for button, wide in ((plus, 500), (plus, 250), (minus, 500), (whole, 1000)):
        button.click()
        assert browser.execute_script(width) == pytest.approx(wide)
    assert browser.execute_script(points) == many


@pytest.mark.parametrize(
    ("figure", "first", "rows"),
    [
        ("#parts", ["mean: device", "gemm, 30 ms", "kernels", "0.5", "30"], 3),
        ("#memory-1", ["0", "2", "0", "0.01563", "4"], 12),
    ],
)
def test_all_values_stand_in_a_table(show, figure, first, rows):
    browser = show(golden.rich_report())
    part = browser.find_element("css selector", f"{figure} .tool[aria-expanded]")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", part)
    part.click()
    wait(browser, f"return document.querySelector('{figure} .values tbody')")
    told = browser.execute_script(
        f"return [...document.querySelectorAll('{figure} .values tbody tr')]"
        ".map((row) => [...row.children].map((cell) => cell.textContent))"
    )
    assert told[0] == first
    assert len(told) == rows


def test_words_of_a_program_stay_words(show):
    browser = show(golden_attack.attack_report())
    browser.execute_script(
        "for (const each of document.querySelectorAll('.tool')) each.click();"
        "for (const over of document.querySelectorAll('.over')) for (const key of ['ArrowRight', "
        "'ArrowDown', '+']) over.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))"
    )
    wait(browser, "return document.querySelectorAll('.values tbody td').length > 10")
    assert browser.execute_script("return window.attacked") is None
    assert (
        browser.execute_script("return document.querySelectorAll('.chart :is(img, script)').length")
        == 0
    )
    assert browser.get_log("browser") == []


def test_paper_has_neither_buttons_nor_tables_of_values(show):
    browser = show(golden.rich_report())
    shown = (
        "const all = [...document.querySelectorAll('.under, .over')];"
        "return [all.length > 0, all.some((one) => one.checkVisibility())]"
    )
    assert browser.execute_script(shown) == [True, True]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert browser.execute_script(shown) == [True, False]
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


# ---- plotly, where it was asked for --------------------------------------------------------------


def test_a_chart_becomes_plotly_when_it_is_looked_at(show):
    browser = show(PLOTLY)
    wake_charts(browser)
    names = browser.execute_script(
        "return document.querySelector('.live-plot').data.map((trace) => trace.name)"
    )
    assert names == ["quiet pass", "loud pass"]
    assert not browser.execute_script("return document.querySelector('.plot').checkVisibility()")


def test_memory_and_parts_become_plotly_too(show):
    browser = show(PLOTLY)
    wake_charts(browser, "#memory-1", "#parts")
    kinds = (
        "return Object.fromEntries(arguments[0].map((id) => [id, document.querySelector(`#${id} "
        ".live-plot`).data"
        ".map((trace) => trace.type + ' ' + trace.name)]))"
    )
    assert browser.execute_script(kinds, ["parts", "memory-1"]) == {
        "parts": ["bar forward", "bar backward", "bar kernels"],
        "memory-1": [
            "scatter model.py:31 __init__",
            "scatter trainer.py:140 step",
            "scatter all other lines",
            "scatter reserved",
        ],
    }
    top = browser.execute_script(
        "return document.querySelector('#memory-1 .live-plot').calcdata[2].map((point) => point.y)"
    )
    assert max(top) == pytest.approx(2 + 1.5 + 1 / 64, rel=1e-3)


# Scrolls to an element and calls back when an observer made after the page's own has seen it: the
# page has seen it too.
_SEEN = """
const [place, done] = arguments, element = document.querySelector(place);
new IntersectionObserver((entries, mine) => {
  if (!entries.some((entry) => entry.isIntersecting)) return;
  mine.disconnect();
  setTimeout(done);
}).observe(element);
element.scrollIntoView();
"""


def test_a_chart_of_five_thousand_points_wakes_within_thewait(show):
    x = tuple(map(float, range(500)))
    wave = tuple((number * 7919) % 1000 << 20 for number in range(500))
    report = golden.silent_report()
    many = tuple(Tone(f"train.py:{number}", number % 10) for number in range(9))
    browser = show(
        replace(
            report,
            interactive_figures=True,
            layers=(Layers("Memory", "", "event", x, many, (wave,) * 9, wave, (), 100_000, ()),),
        )
    )
    wake_charts(browser, "#memory-1")
    assert browser.get_log("browser") == []
    wait(
        browser, "return document.querySelectorAll('.live-plot .scatterlayer .trace').length === 10"
    )


def test_charts_stay_still_pictures_without_decompression(show):
    browser = show(golden.silent_report())
    hide = {"source": "delete window.DecompressionStream"}
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", hide)
    try:
        show(PLOTLY)
        browser.execute_async_script(_SEEN, "figure.chart")
        assert browser.execute_script("return document.querySelector('.plot').checkVisibility()")
        assert browser.execute_script("return document.querySelector('.live-plot')") is None
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_print_shows_the_still_charts(show):
    browser = show(PLOTLY)
    wake_charts(browser)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert browser.execute_script("return document.querySelector('.plot').checkVisibility()")
        assert not browser.execute_script(
            "return document.querySelector('.live-plot').checkVisibility()"
        )
        assert not browser.execute_script(
            "return document.querySelector('button.copy').checkVisibility()"
        )
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


_OUTSIDE = """
return [...document.querySelectorAll('.plot .y span, .plot .x span, .live-plot .ytick text, .live-plot .xtick text')]
  .filter((one) => one.checkVisibility())
  .map((one) => [one.textContent, one.getBoundingClientRect()])
  .filter(([, at]) => at.left < 0 || at.right > innerWidth).map(([words]) => words)
"""


def test_no_label_of_a_chart_is_cut_off_on_a_phone(show):
    report = golden.rich_report()
    long = "NCCL communication stream of rank 13"
    assert report.parts is not None
    parts = replace(report.parts, rows=(long, *report.parts.rows[1:]))
    browser = show(replace(report, parts=parts, interactive_figures=True), 390)
    assert browser.execute_script(_OUTSIDE) == []
    words = browser.execute_script("return document.querySelector('#parts .y').textContent")
    assert long in words
    wake_charts(browser, "#parts")
    assert browser.execute_script(_OUTSIDE) == []
