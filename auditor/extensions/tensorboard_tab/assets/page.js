// The list of runs, and the report or the trace of the one that is chosen. The address says which: #run=NAME&view=trace.
"use strict";
(async () => {
  const element = (id) => document.getElementById(id);
  const frames = new Map(); // "run view" -> its frame: a trace is read once
  let runs = [];

  const chosen = () => new URLSearchParams(location.hash.slice(1));
  const go = (run, view, more = {}) => { location.hash = new URLSearchParams({run, view, ...more}); };

  // A report is told which of its findings have slices in the trace beside it; it may then ask for one to be shown.
  const tell = async (run, frame) => {
    const reply = await fetch(`findings?${new URLSearchParams({run})}`);
    if (!reply.ok) return;
    const {findings} = await reply.json();
    const traced = findings.filter((finding) => finding.slices).map((finding) => finding.key);
    frame.contentWindow.postMessage({traced}, "*");
    addEventListener("message", (asked) => {
      if (asked.source !== frame.contentWindow) return;
      if (traced.includes(asked.data?.finding)) go(run, "trace", {finding: asked.data.finding});
    });
  };

  const framed = ({name: run, trace}, view) => {
    const name = `${view} ${run}`;
    if (!frames.has(name)) {
      const frame = document.createElement("iframe");
      frame.title = view === "report" ? "Report" : "Trace";
      // A report may come from a stranger: no origin, so that it reads nothing of ours.
      frame.sandbox = view === "report" ? "allow-scripts allow-popups" : "allow-scripts allow-same-origin";
      if (trace && view === "report") frame.addEventListener("load", () => tell(run, frame), {once: true});
      frame.src = `${view === "report" ? "report" : "viewer"}?${new URLSearchParams({run})}`;
      element("frames").append(frame);
      frames.set(name, frame);
    }
    return frames.get(name);
  };

  // The viewer reads its address when it has read the trace, and again when it changes.
  const zoom = (frame, wanted) => {
    const hash = `#${new URLSearchParams(wanted)}`;
    const address = frame.contentWindow.location;
    if (!address.pathname.endsWith("/viewer")) frame.src = frame.src.split("#")[0] + hash;
    else if (address.hash === hash) frame.contentWindow.dispatchEvent(new HashChangeEvent("hashchange")); // asked for once more
    else address.hash = hash;
  };

  const show = () => {
    const run = runs.find((each) => each.name === chosen().get("run")) ?? runs[0];
    if (!run) return;
    const view = chosen().get("view") === "trace" && run.trace ? "trace" : "report";
    for (const button of element("runs").querySelectorAll("button")) {
      button.setAttribute("aria-current", String(button.dataset.run === run.name));
    }
    element("subject").textContent = run.target ?? run.name;
    for (const [id, there] of [["show-report", run.page], ["show-trace", run.trace]]) {
      element(id).disabled = !there;
      element(id).setAttribute("aria-pressed", String(id === `show-${view}`));
      element(id).onclick = () => go(run.name, id.slice("show-".length));
    }
    element("show-trace").title = run.trace ? "" : "this run has no trace beside its report";
    for (const frame of frames.values()) frame.hidden = true;
    element("said").textContent = run.page || view !== "report" ? "" : run.problem ?? "this run has no report.html";
    if (run.page || view !== "report") {
      const frame = framed(run, view), wanted = [...chosen()].filter(([name]) => name === "finding");
      frame.hidden = false;
      if (view === "trace" && wanted.length) zoom(frame, wanted);
    }
  };

  const listed = (run) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.dataset.run = run.name;
    button.onclick = () => go(run.name, "report");
    const lines = [["b", run.name], ["small", run.recorded], ["small", run.problem ?? run.said]];
    for (const [tag, words] of lines) {
      if (words) button.appendChild(document.createElement(tag)).textContent = words;
    }
    item.append(button);
    return item;
  };

  addEventListener("hashchange", show);
  try {
    runs = (await (await fetch("runs")).json()).runs;
  } catch (problem) {
    element("said").textContent = `The list of runs cannot be read: ${problem.message}`;
    return;
  }
  element("runs").append(...runs.map(listed));
  if (!runs.length) element("said").textContent = "No run of audit lies in this folder.";
  show();
})();
