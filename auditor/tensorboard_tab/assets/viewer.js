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
    return {view, model};
  };

  const zoom = (view, slice) => {
    view.brushingStateController.changeSelectionFromTimeline(new tr.model.EventSet([slice]));
    const viewport = view.trackView.viewport;
    const around = Math.max(slice.duration, 0.001) * 2; // room on both sides, so that its neighbours are seen
    const transform = viewport.currentDisplayTransform.clone();
    transform.xSetWorldBounds(slice.start - around, slice.end + around, viewport.modelTrackContainer.canvas.width);
    viewport.setDisplayTransformImmediately(transform);
    viewport.trackForEvent(slice)?.scrollIntoViewIfNeeded?.();
  };

  // -- findings -----------------------------------------------------------------------------------------------------------

  const framesOf = (slices, finding) => {
    const place = `${finding.file.split("/").pop()}(${finding.line}):`;
    return finding.file ? slices.filter((slice) => slice.category === "python_function" && slice.title.includes(place)) : [];
  };

  // In an operator, a backward pass or an optimizer's step, which are not the user's own lines.
  const isInside = (slice) => {
    for (let outer = slice.parentSlice; outer; outer = outer.parentSlice) {
      if (/^(aten::|autograd::|Optimizer\.)/.test(outer.title)) return true;
    }
    return false;
  };

  // Slices of the finding's kind; where the trace has the Python frame of its place, only those inside it.
  const slicesOf = (slices, finding) => {
    if (!finding.slices) return {found: [], exact: false};
    const kind = new RegExp(finding.slices);
    const found = slices.filter((slice) => kind.test(slice.title) && !(finding.outermost && isInside(slice)));
    const frames = framesOf(slices, finding);
    const inside = found.filter((slice) => frames.some((frame) => frame.start <= slice.start && slice.end <= frame.end));
    return inside.length ? {found: inside, exact: true} : {found, exact: false};
  };

  const list = (view, slices, findings) => {
    make("h1", aside, "Findings in the trace");
    make("p", aside, "A button goes to the longest slice of the finding's kind, then to the next one. "
      + "Where the trace has no Python frames, a slice may come from another line that does the same.");
    const items = make("ul", aside);
    for (const finding of findings) {
      const item = make("li", items);
      item.dataset.key = finding.key;
      make("b", item, finding.code);
      make("small", item, finding.place);
      make("small", item, finding.message);
      const {found, exact} = slicesOf(slices, finding);
      if (!found.length) {
        make("small", item, finding.slices ? "(no such slice in this trace)" : "(not a matter of slices)");
        continue;
      }
      const button = make("button", item, `Show in trace (${found.length}${exact ? ", of this line" : ""})`);
      const longest = found.reduce((best, slice) => (slice.duration > best.duration ? slice : best));
      let at = found.indexOf(longest) - 1;
      button.onclick = () => {
        at = (at + 1) % found.length;
        for (const other of items.children) other.setAttribute("aria-current", String(other === item));
        zoom(view, found[at]);
        document.body.dataset.shown = `${finding.key} ${at}`;
      };
    }
    const wanted = new URLSearchParams(location.hash.slice(1)).get("finding");
    [...items.children].find((item) => item.dataset.key === wanted)?.querySelector("button")?.click();
  };

  try {
    const [text, {findings}] = await Promise.all([
      get("trace").then((reply) => reply.text()),
      get("findings").then((reply) => reply.json()),
    ]);
    const {view, model} = await opened(text);
    view.viewTitle = run;
    status.remove();
    const slices = [...model.getDescendantEvents()].filter((event) => event.title && event.duration >= 0);
    slices.sort((one, other) => one.start - other.start);
    list(view, slices, findings);
    document.body.dataset.slices = slices.length;
    window.viewer = view;
  } catch (problem) {
    status.textContent = `The trace cannot be shown: ${problem.message}`;
    document.body.dataset.problem = problem.message;
  }
})();
