// A report.json or a trace, read in the browser alone. The report is laid out as report.html is, with its styles and scripts; all
// text of a file becomes text nodes and nothing else.
"use strict";
(() => {
  const element = (id) => document.getElementById(id);
  const known = JSON.parse(element("known").textContent);
  const Wrong = class extends Error {};

  // -- words ---------------------------------------------------------------------------------------

  const HIDDEN = /(?![\n\t])[\p{C}\p{Zl}\p{Zp}]/gu; // control, direction and zero-width characters, lone surrogates
  const visible = (value, limit = 4000) => {
    const text = String(value ?? "").slice(0, limit + 1).replace(HIDDEN, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
    return text.length > limit ? `${text.slice(0, limit)} ...` : text;
  };

  const digits = (value) => (Number.isFinite(value) ? Number(value.toPrecision(3)).toLocaleString("en", {maximumFractionDigits: 6}) : "?");
  const scaled = (us) => (Math.abs(us) < 999.5 ? ["µs", 1] : Math.abs(us) < 999.5e3 ? ["ms", 1e3] : ["s", 1e6]);
  const duration = (us) => { const [unit, scale] = scaled(us); return `${digits(us / scale)} ${unit}`; };
  const size = (bytes) => {
    let power = 0;
    for (; Math.abs(bytes) >= 1023.5 && power < 4; power += 1) bytes /= 1024;
    return `${digits(bytes)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
  };
  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const moment = (when) => (Number.isNaN(Date.parse(when)) ? visible(when, 60) : `${new Date(when).toISOString().slice(0, 16).replace("T", " ")} UTC`);
  const place = (site) => (site ? `${visible(site.file)}:${Number(site.line)}` : "");
  const title = (name) => visible(name && !/\s/.test(name) ? name[0].toUpperCase() + name.slice(1).replaceAll("-", " ") : name, 200);

  // As auditor/reports/costs.py says it: an interval that reaches zero proves nothing.
  const price = ({lost_us_per_step: us, lost_us_per_step_low: low, lost_us_per_step_high: high, lost_bytes: bytes, basis, grows}) => {
    if (typeof us === "number" && us > 0) {
      const proven = low == null || low > 0;
      const between = low == null || high == null ? "" : `between ${duration(low)} and ${duration(high)}`;
      return {short: proven ? `${duration(us)} / step` : "not proven", basis: proven ? basis : `${duration(us)} / step`, between};
    }
    return bytes ? {short: `${size(bytes)}${grows ? " / step" : ""}`, basis} : null;
  };

  // -- elements ------------------------------------------------------------------------------------

  const make = (tag, told = {}, ...inside) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(told)) if (value !== undefined) made.setAttribute(name, value);
    made.append(...inside.flat(9).filter((each) => each !== null && each !== ""));
    return made;
  };
  const of = (name) => (told, ...inside) => make(name, typeof told === "string" ? {class: told} : told, ...inside);
  const [p, b, span, div, li, section] = ["p", "b", "span", "div", "li", "section"].map(of);
  const list = (value) => { if (!Array.isArray(value ?? [])) throw new Wrong("a list is missing"); return value ?? []; };

  // What stands between backticks is code.
  const prose = (text) => {
    const parts = visible(text).split("`");
    return parts.length % 2 ? parts.map((part, at) => (at % 2 ? make("code", {}, part) : part)) : [visible(text)];
  };
  const copy = (id, what) => make("button", {type: "button", class: "copy", "data-copy": id, "aria-label": `Copy ${what}`, hidden: ""}, "Copy");
  const code = (lines, id, label) => make("pre", {class: "code", id, tabindex: 0, role: "group", "aria-label": label}, make("code", {},
    lines.map(([kind, text, number]) => make("span", {class: kind, "data-line": number}, `${visible(text, 400)}\n`))));
  const titled = (id, words, tally, ...inside) => section({id, "aria-labelledby": `${id}-title`},
    make("h2", {id: `${id}-title`}, words, " ", span("tally", tally)), ...inside);
  const pairs = (kind, rows) => make("dl", {class: kind}, rows.map(([name, value]) => div({}, make("dt", {}, visible(name, 100)), make("dd", {}, visible(value, 500)))));
  const sentences = (all) => make("ul", {class: "sentences"}, list(all).map((each) => li({}, visible(each, 2000))));

  // -- the report ----------------------------------------------------------------------------------

  const LEVELS = {error: "▲", warning: "◆", note: "●"};
  const level = ({severity}) => (severity in LEVELS ? severity : "note");
  const DIFF = [[/^(---|\+\+\+|diff) /, "file"], [/^@@/, "hunk"], [/^\+/, "add"], [/^-/, "remove"], [/^/, "plain"]];

  const excerpt = (site, around) => {
    if (!site) return [];
    if (!around?.lines?.length) return site.text ? [["marked", site.text, site.line]] : [];
    const margin = Math.min(...around.lines.filter((line) => line.trim()).map((line) => line.search(/\S/)));
    return around.lines.map((line, at) => [around.first + at === site.line ? "marked" : "plain", line.slice(margin), around.first + at]);
  };

  const fix = (remedy, id) => {
    if (!remedy || !(remedy.text || remedy.diff || remedy.config || remedy.refused)) return null;
    const lines = remedy.diff ? remedy.diff.trimEnd().split("\n").slice(0, 400).map((line) => [DIFF.find(([kind]) => kind.test(line))[1], line]) : [];
    return div("fix", make("h4", {}, "What to do"), remedy.text ? p({}, prose(remedy.text)) : null,
      lines.length ? div("diff", p("bar", span(`safety ${remedy.safe ? "safe" : "unsafe"}`, remedy.safe ? "✓ safe" : "! needs your judgement"), copy(`${id}-diff`, "the patch")),
        code(lines, `${id}-diff`, "Patch")) : null,
      remedy.config ? code([["plain", remedy.config]], `${id}-config`, "Setting") : null,
      remedy.refused ? p("refused", b({}, "No patch:"), " ", visible(remedy.refused, 1000)) : null);
  };

  const card = (finding, number, report) => {
    const id = `finding-${number + 1}`, cost = price(finding), at = place(finding.site), patch = finding.remedy?.diff;
    const name = visible(finding.code, 20), facts = list(finding.facts);
    const severity = span(`severity ${level(finding)}`, make("span", {"aria-hidden": "true"}, LEVELS[level(finding)]), ` ${level(finding)}`);
    const lines = excerpt(finding.site, report.excerpts?.[`${finding.site?.file}:${finding.site?.line}`]);
    return make("article", {class: `finding ${level(finding)}`, id, "data-severity": level(finding), "data-patch": patch ? "yes" : "no", tabindex: -1, "aria-labelledby": `${id}-title`},
      make("details", {class: "row"},
        make("summary", {}, severity, b("code", name),
          span("what", make("h3", {id: `${id}-title`}, title(finding.name)),
            span("at", at ? span("place", at) : span("brief", prose(visible(finding.message, 110))), " ", patch ? span("bit", finding.remedy.safe ? "safe patch" : "patch") : null)),
          span("cost", cost ? cost.short : make("i", {}, "not priced"))),
        div("body",
          cost ? p("price", b({}, cost.short), " ", span({}, visible(cost.basis, 60)), cost.between ? span({}, cost.between) : null) : null,
          p("message", prose(finding.message)),
          p("where", at ? [span({class: "place", id: `${id}-place`}, at), copy(`${id}-place`, "the place")] : "no single place in the source",
            finding.site?.function ? span("bit", " in ", make("code", {}, visible(finding.site.function, 200))) : null),
          lines.length ? code(lines, `${id}-source`, `Source around ${at}`) : null,
          finding.places?.length ? make("ul", {class: "sentences"}, list(finding.places).map((one) => li({}, place(one), " ", make("code", {}, visible(one.expression, 200))))) : null,
          facts.length ? make("table", {class: "facts"}, make("caption", {class: "vh"}, "Evidence"), make("tbody", {}, facts.map(([fact, value]) => make("tr", {}, make("th", {scope: "row"}, visible(fact, 200)), make("td", {}, prose(value)))))) : null,
          fix(finding.remedy, id),
          known.rules.includes(finding.code) ? make("footer", {}, make("a", {href: `../rules/${finding.code.toLowerCase()}.html`}, `About ${finding.code}: why it costs, when to ignore it`)) : null)));
  };

  const filter = (findings) => {
    const levels = Object.keys(LEVELS).filter((each) => findings.some((finding) => level(finding) === each));
    const bar = div({class: "filter", role: "search", "aria-label": "Findings", hidden: ""},
      make("label", {class: "words"}, span("vh", "Words in a finding"), make("input", {type: "search", id: "filter-words", placeholder: "Search", autocomplete: "off", spellcheck: "false"})),
      levels.length > 1 ? make("label", {}, span("vh", "By severity"), make("select", {id: "filter-severity", "data-by": "severity"}, make("option", {value: "*"}, "all severities"), levels.map((each) => make("option", {value: each}, each)))) : null,
      make("label", {class: "tick"}, make("input", {type: "checkbox", id: "filter-patch"}), " has a patch"),
      make("button", {type: "button", class: "copy", id: "open-all"}, "Open all"), p({class: "tally", id: "filtered", role: "status"}));
    return findings.length > 1 ? bar : null;
  };

  const heading = ({run}) => {
    const step = run.step_us, peak = run.peak_bytes ?? {}, ended = run.outcome === "completed";
    const stats = [];
    if (step) stats.push(["Median step", duration(step.median)], ...(step.mean == null ? [] : [["Mean step", duration(step.mean)]]), ["Steps timed", digits(step.n)]);
    if (peak.device != null) stats.push(["Peak device memory", size(peak.device)]);
    if (peak.host != null) stats.push(["Peak host memory", size(peak.host)]);
    return make("header", {class: "top", id: "summary"}, make("h1", {}, span("vh", "Audit of "), visible(run.target, 300)),
      p("sentence", `${count(Number(run.steps), "step")} on `, b({}, visible(run.device, 60)), run.torch ? ` with torch ${visible(run.torch, 60)}` : "",
        run.python ? ` and Python ${visible(run.python, 60)}` : "", run.recorded_at ? `, recorded ${moment(run.recorded_at)}` : "", ". Outcome: ",
        make("strong", {class: `outcome ${ended ? "ok" : "bad"}`}, visible(run.outcome, 60)), "."),
      stats.length ? pairs("stats", stats) : null);
  };

  const STATUSES = [["failed", "Failed", "failed to run"], ["skipped", "Not checked", "could not be checked"], ["clean", "Passed", "passed"]];
  const verdicts = (report) => STATUSES.map(([status, words, said]) => {
    const these = list(report.verdicts).filter((each) => each.status === status);
    return these.length ? titled(status, words, `${count(these.length, "rule")} ${said}`, make("details", {}, make("summary", {}, "Show them"),
      make("ul", {class: "sentences"}, these.map((each) => li({}, b({}, visible(each.code, 20)), ` ${title(each.name)}`, each.reason ? `: ${visible(each.reason, 500)}` : ""))))) : null;
  });

  const contents = (report, findings) => make("nav", {class: "contents", "aria-label": "Contents"},
    p("brand", visible(report.tool?.name, 60), " ", span({}, visible(report.tool?.version, 30))),
    make("ul", {}, li({}, make("a", {href: "#summary"}, "Summary")),
      findings.length ? li({}, make("a", {href: "#findings"}, "Findings ", span("tally", String(findings.length))), make("ol", {}, findings.slice(0, 60).map((finding, at) =>
        li({}, make("a", {href: `#finding-${at + 1}`}, make("span", {class: `dot ${level(finding)}`, "aria-hidden": "true"}), b({}, visible(finding.code, 20)), " ", span({}, price(finding)?.short ?? "not priced")))))) : null,
      STATUSES.filter(([status]) => report.verdicts?.some((each) => each.status === status)).map(([status, words]) => li({}, make("a", {href: `#${status}`}, words)))));

  const laidOut = (report) => {
    const findings = list(report.findings), run = report.run;
    const numbers = Object.keys(LEVELS).map((each) => [findings.filter((finding) => level(finding) === each).length, each]).filter(([n]) => n);
    const first = [...list(report.caveats), ...list(report.cautions)];
    return div("frame", contents(report, findings), make("main", {id: "main", tabindex: -1}, heading(report),
      first.length ? section("panel caveats", first.map((each) => p({}, b({}, visible(each, 2000))))) : null,
      run.error ? section("panel failure", make("h2", {}, visible(run.error.type, 200)), p("message", visible(run.error.message, 2000)), run.error.site ? p("where", place(run.error.site)) : null) : null,
      findings.length ? titled("findings", "Findings", numbers.map(([n, each]) => count(n, each)).join(", "), filter(findings), findings.map((finding, at) => card(finding, at, report)))
        : section("headline", div(run.outcome === "completed" && !first.length ? "gain nothing" : "gain", p("figure", "Nothing found"), p({}, `${count(list(report.verdicts).filter((each) => each.status === "clean").length, "rule")} looked.`))),
      verdicts(report),
      report.warnings?.length ? titled("warnings", "Warnings", "what limited this audit", sentences(report.warnings)) : null,
      titled("environment", "Environment", "", pairs("pairs", Object.entries(report.environment ?? {}))),
      report.method?.length ? titled("method", "How it was measured", "", sentences(report.method)) : null,
      p("aside", "Charts, device time and what each fix buys are in report.html, which the audit wrote beside this file.")));
  };

  // -- files ---------------------------------------------------------------------------------------

  const read = async (file) => {
    const zipped = new Uint8Array(await file.slice(0, 2).arrayBuffer()).join() === "31,139";
    const stream = zipped ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
    const decoder = new TextDecoder(), parts = [];
    let bytes = 0;
    const reader = stream.getReader();
    for (let {done, value} = await reader.read(); !done; {done, value} = await reader.read()) {
      bytes += value.length;
      if (bytes > known.most) {
        await reader.cancel();
        throw new Wrong(`it has more than ${size(known.most)}, the most that this page reads`);
      }
      parts.push(decoder.decode(value, {stream: true}));
    }
    return parts.join("") + decoder.decode();
  };

  const understood = async (file) => {
    let text, held;
    try {
      text = await read(file);
    } catch (problem) {
      throw problem instanceof Wrong ? problem : new Wrong("it cannot be read, or is damaged");
    }
    if (/^\s*<(!doctype|html)/i.test(text.slice(0, 200))) throw new Wrong("it is a page: open report.html in the browser itself, or drop the report.json beside it");
    try {
      held = JSON.parse(text);
    } catch {
      throw new Wrong("it is not JSON");
    }
    if (Array.isArray(held) || Array.isArray(held?.traceEvents)) return {trace: text};
    if (held?.schema === known.schema) return {report: held};
    if (typeof held?.schema === "string" && held.schema.startsWith("audit-report/")) throw new Wrong(`its schema is ${visible(held.schema, 40)}, and this page reads ${known.schema}`);
    throw new Wrong("it is neither a report.json of audit nor a trace of torch.profiler");
  };

  // -- what is shown -------------------------------------------------------------------------------

  let at = {}; // the report and the trace that are open, and their names

  // What the viewer asks of a server in audit view.
  const inTrace = (report) => ({findings: list(report.findings).map((finding) => ({
    key: String(finding.key), code: visible(finding.code, 40), message: visible(finding.message, 500), file: String(finding.site?.file ?? ""),
    line: finding.site?.line ?? 0, function: finding.site?.function ?? "", perStep: finding.per_step, place: place(finding.site),
    slices: Object.hasOwn(known.patterns, finding.code) ? known.patterns[finding.code] : "", outermost: known.outermost.includes(finding.code),
  }))});

  const show = (view) => {
    for (const each of ["report", "trace"]) {
      element(`show-${each}`).setAttribute("aria-pressed", String(each === view));
      if (at[each]?.shown) at[each].shown.hidden = each !== view;
    }
    if (view === "trace" && !at.trace.shown) {
      const frame = make("iframe", {title: "Trace", src: "trace.html", sandbox: "allow-scripts allow-same-origin"});
      const told = {name: at.trace.name, text: at.trace.held, found: at.report ? inTrace(at.report.held) : null};
      addEventListener("message", (asked) => { if (asked.source === frame.contentWindow && asked.data === "ready") frame.contentWindow.postMessage(told, "*"); });
      at.trace.shown = frame;
      element("shown").append(frame);
    }
  };

  const open = async (files) => {
    const found = {}, wrong = [];
    for (const file of files) {
      try {
        const made = await understood(file);
        const [kind] = Object.keys(made);
        if (kind === "trace" && !known.viewer) throw new Wrong("it is a trace, and this copy of the site was built without the viewer: audit view shows it");
        found[kind] = {held: made[kind], name: file.name};
        if (kind === "report") {
          try {
            found.report.shown = laidOut(made.report);
          } catch {
            delete found.report;
            throw new Wrong(`it does not keep to ${known.schema}`);
          }
        }
      } catch (problem) {
        wrong.push(`${visible(file.name, 200)} cannot be shown: ${problem instanceof Wrong ? problem.message : "this page failed"}.`);
      }
    }
    element("wrong").textContent = wrong.join(" ");
    if (!found.report && !found.trace) return;
    at = found;
    element("shown").replaceChildren(...(found.report ? [found.report.shown] : []));
    element("names").textContent = [found.report, found.trace].filter(Boolean).map((each) => visible(each.name, 200)).join(", ");
    document.querySelector(".switch").hidden = !(found.report && found.trace);
    document.body.classList.add("filled");
    document.querySelector(".door").setAttribute("role", "banner");
    if (found.report) element("shown").removeAttribute("role");
    else element("shown").setAttribute("role", "main");
    element("choose").textContent = "Open another";
    document.title = found.report ? `Audit of ${visible(found.report.held.run.target, 200)}` : visible(found.trace.name, 200);
    if (found.report) wakeReport();
    show(found.report ? "report" : "trace");
    element("said").textContent = `${element("names").textContent} is open`;
  };

  for (const view of ["report", "trace"]) element(`show-${view}`).onclick = () => show(view);
  element("files").onchange = async ({target}) => { await open([...target.files]); target.value = ""; };
  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("over"); });
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("over");
    open([...event.dataTransfer.files]);
  });
})();
