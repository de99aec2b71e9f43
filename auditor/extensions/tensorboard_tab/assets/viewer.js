// The trace of one run in Catapult, beside the run's findings: each that has slices of its kind zooms to them.
"use strict";
(async () => {
  const run = new URLSearchParams(location.search).get("run") ?? "";
  const make = (tag, parent, words = "", name = "") => {
    const made = document.createElement(tag);
    made.textContent = words;
    if (name) made.id = name;
    parent?.append(made);
    return made;
  };
  // On the site nothing is asked for: the page around this one read the trace from a file (docs/open).
  const dropped = () => new Promise((given) => {
    addEventListener("message", (told) => { if (told.source === parent) given(told.data); });
    parent.postMessage("ready", "*");
  });
  const get = async (route) => {
    const reply = await fetch(`${route}?${new URLSearchParams({run})}`);
    if (!reply.ok) throw new Error((await reply.text()).trim());
    return reply;
  };

  const aside = make("aside", document.body, "", "findings");
  const stage = make("div", document.body, "", "stage");
  const status = make("p", stage, "Reading the trace ...", "status");
  status.setAttribute("role", "status");

  // -- Catapult -----------------------------------------------------------------------------------------------------------

  const opened = async (text) => {
    const container = document.createElement("track-view-container");
    container.id = "track_view_container";
    const view = document.createElement("tr-ui-timeline-view");
    view.id = "trace-viewer";
    view.track_view_container = container;
    Polymer.dom(view).appendChild(container);
    stage.append(view);
    view.globalMode = true;
    const model = new tr.Model();
    new tr.importer.Import(model).importTraces([text]);
    await view.build(model);
    // It shows the whole trace once its poll has found it on the page, and draws in the next frame: what is zoomed before is lost.
    while (view.trackView?.pollIfViewportAttachedInterval_) await new Promise((done) => { setTimeout(done, 20); });
    for (const _ of [1, 2]) await new Promise(requestAnimationFrame);
    return {view, model};
  };

  const zoom = (view, shown) => {
    const viewport = view.trackView.viewport, {start, end} = shown;
    view.brushingStateController.changeSelectionFromTimeline(new tr.model.EventSet([shown]));
    const around = Math.max((end - start) * 2, 0.01); // ms on both sides, so that its neighbours are seen
    const transform = viewport.currentDisplayTransform.clone();
    transform.xSetWorldBounds(start - around, end + around, viewport.modelTrackContainer.canvas.width);
    viewport.setDisplayTransformImmediately(transform);
    viewport.trackForEvent(shown)?.scrollIntoViewIfNeeded?.();
  };

  // -- which slices are a finding's -----------------------------------------------------------------------------------------

  // In an operator, a backward pass or an optimizer's step, which are not the user's own lines.
  const isInside = (slice) => {
    for (let outer = slice.parentSlice; outer; outer = outer.parentSlice) {
      if (/^(aten::|autograd::|Optimizer\.)/.test(outer.title)) return true;
    }
    return false;
  };

  const within = (inner, outer) => outer.start <= inner.start && inner.end <= outer.end;

  const ofKind = (slices, finding) => {
    const kind = finding.slices ? new RegExp(finding.slices) : null;
    return kind ? slices.filter((slice) => kind.test(slice.title) && !(finding.outermost && isInside(slice))) : [];
  };

  // Those that were called inside the Python frame of the finding's place. Work of a device is where its launch was.
  const framed = (slices, found, finding) => {
    const place = `${finding.file.split("/").pop()}(${finding.line}):`;
    const frames = finding.file ? slices.filter((slice) => slice.category === "python_function" && slice.title.includes(place)) : [];
    if (!frames.length) return [];
    const launches = new Map(slices.filter((slice) => /_(runtime|driver)$|^Runtime$/.test(slice.category))
      .map((slice) => [slice.args?.correlation, slice]));
    const called = (slice) => (/^(kernel|gpu_)/i.test(slice.category) ? launches.get(slice.args?.correlation) ?? slice : slice);
    return found.filter((slice) => frames.some((frame) => within(called(slice), frame)));
  };

  // Lines of one function that each do it so many times a step: where the counts fit in every step, they are in order.
  const dealt = (slices, found, finding, findings) => {
    const peers = findings.filter((other) => other.code === finding.code);
    const together = peers.length > 1 && peers.every((other) => other.file && other.file === finding.file && other.function === finding.function
      && Number.isInteger(other.perStep));
    const steps = slices.filter((slice) => slice.title.startsWith("ProfilerStep#") && !slice.category.startsWith("gpu_"));
    const wanted = peers.reduce((sum, other) => sum + other.perStep, 0);
    const each = steps.map((step) => found.filter((slice) => within(slice, step)));
    if (!together || !steps.length || each.some((of) => of.length !== wanted)) return [];
    const before = peers.filter((other) => other.line < finding.line).reduce((sum, other) => sum + other.perStep, 0);
    return each.flatMap((of) => of.slice(before, before + finding.perStep));
  };

  const slicesOf = (slices, finding, findings) => {
    const found = ofKind(slices, finding);
    const inside = framed(slices, found, finding);
    if (inside.length) return {found: inside, how: "at this place"};
    const own = dealt(slices, found, finding, findings);
    return own.length ? {found: own, how: "by the order of the lines"} : {found, how: ""};
  };

  // -- findings -----------------------------------------------------------------------------------------------------------

  // What stands between backticks is code, as in the report.
  const told = (place, words) => {
    const parts = words.split("`");
    if (parts.length % 2 === 0) place.textContent = words;
    else parts.forEach((part, at) => place.append(at % 2 ? make("code", null, part) : part));
  };

  // A button that goes to the longest of what was found, then to the next one.
  const showing = (view, item, name, found, how) => {
    const button = make("button", item, `Show in trace (${found.length})`);
    if (how) make("i", item, how);
    const longest = found.reduce((best, one) => (one.duration > best.duration ? one : best));
    let at = found.indexOf(longest) - 1;
    button.onclick = () => {
      at = (at + 1) % found.length;
      for (const other of item.parentElement.children) other.setAttribute("aria-current", String(other === item));
      zoom(view, found[at]);
      document.body.dataset.shown = `${name} ${at}`;
    };
  };

  const list = (view, slices, {findings}) => {
    make("h1", aside, "Findings in the trace");
    make("p", aside, "A button goes to the longest slice of the finding's kind, then to the next one. "
      + "Where the trace has no Python frames, a slice may come from another line that does the same.");
    const items = make("ul", aside);
    for (const finding of findings) {
      const item = make("li", items);
      item.dataset.key = finding.key;
      make("b", item, finding.code);
      make("small", item, finding.place);
      told(make("small", item), finding.message);
      const {found, how} = slicesOf(slices, finding, findings);
      if (found.length) showing(view, item, finding.key, found, how);
      else make("small", item, finding.slices ? "(no such slice in this trace)" : "(not a matter of slices)");
    }
    const goToWanted = () => {
      const wanted = new URLSearchParams(location.hash.slice(1)).get("finding");
      [...items.children].find(({dataset}) => dataset.key === wanted)?.querySelector("button")?.click();
    };
    addEventListener("hashchange", goToWanted);
    goToWanted();
  };

  try {
    const served = async () => ({
      name: run,
      text: await get("trace").then((reply) => reply.text()),
      found: await get("findings").then((reply) => reply.json()),
    });
    const {name, text, found} = await ("dropped" in document.documentElement.dataset ? dropped() : served());
    const {view, model} = await opened(text);
    view.viewTitle = name;
    status.remove();
    const slices = [...model.getDescendantEvents()].filter((event) => event.title && event.duration >= 0);
    slices.sort((one, other) => one.start - other.start);
    if (found) list(view, slices, found);
    else aside.remove();
    document.body.dataset.slices = slices.length;
    window.viewer = view;
  } catch (problem) {
    status.textContent = `The trace cannot be shown: ${problem.message}`;
    document.body.dataset.problem = problem.message;
  }
})();
