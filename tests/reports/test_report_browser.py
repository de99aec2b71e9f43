"""report.html in Chromium: quiet console, inert attacks, keyboard, phone width, dark colours."""

import shlex
from dataclasses import replace

import pytest
from auditor.reports import renderer

from auditor.model import FoundAt
from tests.reports import golden_attack
from tests.reports import golden_report as golden
from tests.reports.browsing import NEEDS_CHROMIUM, axe_violations, wait, wake_charts
from tests.reports.test_report_communication import FOUND

pytestmark = [NEEDS_CHROMIUM, pytest.mark.full]


@pytest.mark.parametrize(
    "report",
    [golden.rich_report(), golden.failed_report(), golden_attack.attack_report()],
    ids=["rich", "failed", "attack"],
)
def test_no_console_message_no_request_no_attack(show, report):
    browser = show(replace(report, interactive_figures=True))
    wake_charts(browser, "figure.chart", "#parts", "#memory-1")
    assert browser.get_log("browser") == []
    assert (
        browser.execute_script(
            "return performance.getEntriesByType('resource').map((one) => one.name)"
        )
        == []
    )
    assert browser.execute_script("return window.attacked") is None
    injected = (
        "main :is(img, iframe, object), .live-plot :is(a[href], img), [onload], [onerror], "
        "[onclick]"
    )
    assert (
        browser.execute_script("return document.querySelectorAll(arguments[0]).length", injected)
        == 0
    )


def test_the_policy_stops_what_would_run_or_fetch(show):
    browser = show(golden.rich_report())
    browser.execute_script(
        "const script = document.createElement('script'); script.textContent = 'window.attacked = "
        "1'; document.body.append(script);"
    )
    assert browser.execute_script("return window.attacked") is None
    fetched = browser.execute_async_script(
        "const done = arguments[0]; fetch('https://example.org/').then(() => done(1), () => "
        "done(0));"
    )
    assert fetched == 0


def test_every_finding_is_reached_by_keyboard(show):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser = show(golden.rich_report())
    browser.execute_script(
        "window.reached = []; addEventListener('focusin', (event) =>"
        " reached.push(event.target.closest('article')?.id ?? event.target.className));"
    )
    ActionChains(browser).send_keys(Keys.TAB * 120).perform()
    reached = browser.execute_script("return reached")
    assert reached[0] == "skip"
    assert {f"finding-{number}" for number in range(1, 8)} <= set(reached)


def test_a_link_to_a_rule_opens_its_manual(show):
    browser = show(golden.rich_report())
    browser.find_element("css selector", "#finding-5 summary").click()
    browser.find_element(
        "css selector", "#finding-5 footer a[href='#rule-finding-1']"
    ).click()  # of the same rule as the first
    wait(browser, "return document.getElementById('rule-finding-1').open")
    assert browser.find_element("css selector", "#rule-finding-1 h4").is_displayed()


def test_links_lead_to_their_place_on_a_long_page(show):
    report = golden.rich_report()
    many = tuple(replace(report.findings[n % 3], key=f"finding {n}") for n in range(150))
    browser = show(replace(report, findings=many))
    for link in ("#finding-120", "#memory-1", "#finding-2"):
        browser.execute_script("location.hash = arguments[0]", link)
        top = (
            f"const top = document.querySelector('{link}').getBoundingClientRect().top; return top "
            ">= -2 && top < 300"
        )
        wait(browser, top)


def test_a_patch_is_copied_whole(show):
    browser = show(golden.rich_report())
    grant = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", grant)
    heard = "window.heard = []; const said = document.getElementById('said');"
    browser.execute_script(
        f"{heard} new MutationObserver(() => heard.push(said.textContent)).observe(said, "
        f"{{childList: true}})"
    )
    browser.find_element("css selector", "#finding-1 summary").click()
    button = browser.find_element("css selector", "[data-copy=finding-1-diff]")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    assert wait(browser, "return heard[0]") == "Copied"  # it is said for a moment only
    copied = browser.execute_async_script(
        "navigator.clipboard.readText().then(arguments[0], (e) => arguments[0](String(e)))"
    )
    assert copied == golden.DIFF


@pytest.mark.parametrize(
    "report",
    [golden.rich_report(), golden.failed_report(), golden_attack.attack_report()],
    ids=["rich", "failed", "attack"],
)
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_the_page_never_scrolls_sideways(show, report, width):
    browser = show(report, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


# What is open and reaches beyond its card, but for what scrolls inside it.
_WIDER = """
for (const part of document.querySelectorAll("details")) part.open = true;
const scrolls = (one) => ["auto", "scroll"].includes(getComputedStyle(one).overflowX);
const wider = [];
for (const card of document.querySelectorAll("main > section, article.finding, figure.chart")) {
  const edge = card.getBoundingClientRect().right + 1;
  for (const one of card.querySelectorAll("*")) {
    if (one.closest("svg, .vh") || !one.checkVisibility()) continue;
    let around = one.parentElement;
    while (around !== card && !scrolls(around)) around = around.parentElement;
    if (around === card && one.getBoundingClientRect().right > edge) wider.push(one.outerHTML.slice(0, 90));
  }
}
return wider;
"""


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_is_wider_than_its_card_with_all_open(show, width):
    report = golden.rich_report()
    place = FoundAt(
        report.findings[0].site, "self.running_total_of_the_loss += loss.detach().item()", 1.0
    )
    first = replace(report.findings[0], places=(place, place))
    page = f"{report.manual['SYNC001']}\n```python\n{'a_long_line_of_code + ' * 12}\n```\n"
    browser = show(
        replace(report, findings=(first, *report.findings[1:]), manual={"SYNC001": page}), width
    )
    assert browser.execute_script(_WIDER) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    heights = browser.execute_script(
        "return [...document.querySelectorAll('.parts th[scope=row]')].map((one) => "
        "one.getBoundingClientRect().height)"
    )
    assert heights and max(heights) < 100  # not a column of letters


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_a_place_moves_to_the_next_line_as_one(show, width):
    report = golden.rich_report()
    site = replace(report.findings[0].site, file="train.py", line=35)
    browser = show(replace(report, findings=(replace(report.findings[0], site=site),)), width)
    for letters in range(0, 60, 3):  # wherever the line ends
        lines = browser.execute_script(
            "const title = document.querySelector('.finding h3'); title.textContent = "
            "'w'.repeat(arguments[0] % 10) + ' word'.repeat(arguments[0] / 5); return document"
            ".querySelector('.finding .at .place').getClientRects().length",
            letters,
        )
        assert lines == 1, letters


def test_what_could_not_look_is_one_line_until_it_is_opened(show):
    browser = show(golden.rich_report())
    section = browser.find_element("css selector", "#skipped")
    assert section.size["height"] < 120
    browser.execute_script("location.hash = '#skipped'")
    wait(browser, "return document.querySelector('#skipped .rules-skipped').checkVisibility()")


@pytest.mark.parametrize(
    ("report", "scheme", "width"),
    [
        (golden.rich_report(), "light", 1280),
        (golden.rich_report(), "dark", 390),
        (golden.failed_report(), "light", 390),
        (golden.silent_report(), "dark", 1280),
    ],
    ids=["rich", "rich-dark-phone", "failed-phone", "silent-dark"],
)
def test_axe_finds_no_violation_with_all_open(show, report, scheme, width):
    browser = show(report, width, scheme)
    browser.execute_script(
        "for (const part of document.querySelectorAll('details')) part.open = true;"
        "for (const each of document.querySelectorAll('.tool[aria-expanded]')) each.click();"
    )
    assert axe_violations(browser) == []


@pytest.mark.parametrize(
    "report", [golden.rich_report(), golden_attack.attack_report()], ids=["rich", "attack"]
)
def test_print_fits_its_paper_with_everything_open(show, report):
    browser = show(report, 780)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        browser.execute_script("dispatchEvent(new Event('beforeprint'))")
        assert browser.execute_script(
            "return [...document.querySelectorAll('details')].every((part) => part.open)"
        )
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 780
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("folder", ["plain", "it's my run", "$(touch x)"])
def test_commands_name_the_pages_own_folder_as_a_shell_takes_it(browser, tmp_path, folder):
    home = tmp_path / folder
    home.mkdir()
    rendered = renderer("html").render(replace(golden.rich_report(), folder=folder))
    assert isinstance(rendered, str)
    (home / "report.html").write_text(rendered, "utf-8")
    browser.get((home / "report.html").as_uri())
    said = wait(browser, "return document.querySelector('#command-1').textContent")
    assert said.strip() == f"audit fix {shlex.quote(str(home))}"


def test_a_page_that_was_copied_names_no_folder(browser, tmp_path):
    """Beside the copy stands no report: its folder in a command would be a wrong path."""
    rendered = renderer("html").render(replace(golden.rich_report(), folder="trainer-step-1"))
    assert isinstance(rendered, str)
    (tmp_path / "report.html").write_text(rendered, "utf-8")
    browser.get((tmp_path / "report.html").as_uri())
    said = wait(browser, "return document.querySelector('#command-1').textContent")
    assert said.strip() == "audit fix FOLDER"


# ---- the list of findings ------------------------------------------------------------------------

_SHOWN = (
    "return [...document.querySelectorAll('article.finding[data-key]')]"
    ".filter((one) => one.checkVisibility()).map((one) => one.id.slice(8)).join(' ')"
)


def test_a_row_is_opened_by_a_click_and_by_the_keyboard(show):
    from selenium.webdriver.common.keys import Keys

    browser = show(golden.rich_report())
    message = browser.find_element("css selector", "#finding-1 .message")
    assert not message.is_displayed()
    row = browser.find_element("css selector", "#finding-1 summary")
    assert row.text.split()[1:3] == ["WARNING", "SYNC001"]
    assert "Scalar read every step" in row.text and "8.41 ms / step" in row.text
    row.click()
    assert message.is_displayed()
    row.send_keys(Keys.ENTER)
    assert not message.is_displayed()


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ({}, "1 2 3 4 5 6 7"),
        ({"#filter-severity": "error"}, "4"),
        ({"#filter-family": "SYNC"}, "1 5 6"),
        ({"#filter-family": "SYNC", "#filter-severity": "note"}, "6"),
        ({"#filter-file": "examples/energy_flow/trainer.py", "#filter-severity": "note"}, "6"),
        ({"#filter-words": "LOSS.ITEM() sync001"}, "1"),
        ({"#filter-words": "no finding says this"}, ""),
    ],
    ids=["all", "severity", "family", "both", "file", "words", "none"],
)
def test_findings_are_filtered_and_searched(show, steps, left):
    browser = show(golden.rich_report())
    codes = {each.code: str(number) for number, each in enumerate(golden.rich_report().findings, 1)}
    left = left.replace("4", codes["GRAPH001"]) if left == "4" else left
    for place, value in steps.items():
        field = browser.find_element("css selector", place)
        if field.tag_name == "input":
            field.send_keys(value)
        else:
            field.find_element("css selector", f"option[value='{value}']").click()
    assert browser.execute_script(_SHOWN) == left
    said = browser.find_element("css selector", "#filtered").text
    assert said == (f"{len(left.split())} of 7 shown" if steps else "")


def test_findings_with_a_patch_and_back_by_escape(show):
    from selenium.webdriver.common.keys import Keys

    browser = show(golden.rich_report())
    patched = [
        str(number)
        for number, each in enumerate(golden.rich_report().findings, 1)
        if each.remedy is not None and each.remedy.diff
    ]
    assert 0 < len(patched) < 7
    box = browser.find_element("css selector", "#filter-patch")
    box.send_keys(Keys.SPACE)
    assert browser.execute_script(_SHOWN) == " ".join(patched)
    box.send_keys(Keys.ESCAPE)
    assert browser.execute_script(_SHOWN) == "1 2 3 4 5 6 7"


def test_a_link_leads_to_a_finding_that_is_filtered_out(show):
    browser = show(golden.rich_report())
    browser.find_element("css selector", "#filter-words").send_keys("no finding says this")
    assert browser.execute_script(_SHOWN) == ""
    browser.execute_script("location.hash = '#finding-2'")
    wait(browser, "return document.querySelector('#finding-2 .message').checkVisibility()")
    assert browser.execute_script(_SHOWN) == "1 2 3 4 5 6 7"


def test_all_are_opened_and_closed(show):
    browser = show(golden.rich_report())
    button = browser.find_element("css selector", "#open-all")
    opened = "return document.querySelectorAll('details.row[open]').length"
    for number, word in ((7, "Close all"), (0, "Open all")):
        button.click()
        assert browser.execute_script(opened) == number
        wait(browser, f"return document.getElementById('open-all').textContent === '{word}'")


def test_without_scripts_all_findings_are_there_and_open(show):
    browser = show(golden.silent_report())
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(golden.rich_report())
        rows = browser.find_elements("css selector", "article.finding[data-key]")
        assert [row.is_displayed() for row in rows] == [True] * 7
        assert not browser.find_element("css selector", ".filter").is_displayed()
        browser.find_element("css selector", "#finding-2 summary").click()
        assert browser.find_element("css selector", "#finding-2 .message").is_displayed()
        link = browser.find_element("css selector", ".figure a")
        assert link.get_attribute("href").endswith("#finding-1")
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_figure_of_the_headline_opens_its_finding(show):
    browser = show(golden.rich_report())
    link = next(
        one
        for one in browser.find_elements("css selector", ".figure a")
        if one.text.startswith("412")
    )
    assert not browser.find_element("css selector", "#finding-5 .message").is_displayed()
    link.click()
    wait(browser, "return document.querySelector('#finding-5 .message').checkVisibility()")


def test_long_lines_of_source_scroll_on_a_phone_and_wrap_on_paper(show):
    report = golden.rich_report()
    site = str(report.findings[0].site)
    shown = report.excerpts[site]
    long = replace(shown, lines=("word " * 80, *shown.lines[1:]))
    browser = show(replace(report, excerpts={**report.excerpts, site: long}), 390)
    browser.find_element("css selector", "#finding-1 summary").click()
    inside = (
        "const source = document.getElementById('finding-1-source');"
        "source.scrollLeft = 1000; return source.scrollLeft"
    )
    assert browser.execute_script(inside) > 500
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert browser.execute_script(
            "const source = document.getElementById('finding-1-source');"
            "return source.scrollWidth <= source.clientWidth + 1"
        )
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_columns_of_a_table_keep_their_words_whole_on_a_phone(show):
    browser = show(replace(golden.silent_report(), communication=FOUND), 390)
    heights = browser.execute_script(
        "return [...document.querySelectorAll('#communication .words thead th')]"
        ".map((one) => one.getBoundingClientRect().height)"
    )
    assert heights and max(heights) < 60
    assert browser.execute_script(
        "return [...document.querySelectorAll('#communication td:last-child')]"
        ".every((one) => one.checkVisibility())"
    )
