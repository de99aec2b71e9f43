// The page is whole without this script: it adds copy buttons, opens folded parts that are linked to, and wakes the charts.
"use strict";
(() => {
  const root = document.documentElement;
  const said = document.getElementById("said");

  async function copyText(text) {
    if (navigator.clipboard) {
      try {
        await navigator.clipboard.writeText(text);
        return true;
      } catch (refused) {
        // Not every browser grants the clipboard to a local file.
      }
    }
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "vh";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  function wakeCopyButtons() {
    for (const button of document.querySelectorAll("button.copy")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        const done = await copyText(document.getElementById(button.dataset.copy).textContent);
        button.textContent = done ? "Copied" : "Press Ctrl+C";
        said.textContent = done ? "Copied" : "Could not copy";
        button.focus();
        setTimeout(() => { button.textContent = "Copy"; said.textContent = ""; }, 1500);
      });
    }
  }

  function openLinked() {
    const linked = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!linked) return;
    const folded = linked.matches("details") ? [linked] : linked.querySelectorAll(":scope > details");
    for (const part of folded) part.open = true;
    if (linked.matches("article, details")) linked.scrollIntoView();
  }

  function openForPrint() {
    for (const part of document.querySelectorAll("details")) part.open = true;
  }

  // ---- charts -----------------------------------------------------------------------------------------------------

  let library = null;

  // The bundle is run as an inline script whose hash the page's policy names: no eval, nothing fetched.
  async function unpackPlotly() {
    const packed = document.getElementById("plotly");
    const bytes = Uint8Array.from(atob(packed.textContent.trim()), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    packed.remove();
    if (!window.Plotly) throw new Error("plotly did not start");
    return window.Plotly;
  }

  // The buttons are named one by one: some of plotly's own would leave the page.
  const settings = {
    responsive: true, displaylogo: false,
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  };

  function colour(name) {
    return getComputedStyle(root).getPropertyValue(name).trim();
  }

  // Plotly reads a little markup in its texts: the user's words must stay words.
  function plain(text) {
    return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  }

  function traces(chart) {
    const drawn = chart.lines.map((line) => ({
      type: "scatter", mode: line.x.length > 80 ? "lines" : "lines+markers", name: plain(line.name), x: line.x, y: line.y,
      line: { width: 1.6, dash: line.dash, color: colour("--s" + line.colour) }, marker: { size: 4 },
      hovertemplate: "step %{x}: %{y:.4~r} " + plain(chart.unit),
    }));
    const marks = chart.lines.flatMap((line) => line.marks);
    if (marks.length) {
      drawn.push({
        type: "scatter", mode: "markers", name: "marked step", x: marks.map((mark) => mark.x), y: marks.map((mark) => mark.y),
        text: marks.map((mark) => plain(mark.label)), hovertemplate: "step %{x}: %{text}<extra></extra>",
        marker: { size: 9, color: colour("--error"), symbol: "circle-open", line: { width: 2 } },
      });
    }
    return drawn;
  }

  function layout() {
    const ink = colour("--quiet");
    const axis = { gridcolor: colour("--rule"), zerolinecolor: colour("--rule"), linecolor: colour("--rule") };
    return {
      height: 250, margin: { l: 56, r: 8, t: 8, b: 40 }, showlegend: false, hovermode: "closest", dragmode: "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: colour("--sans"), size: 12, color: ink },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: ink, activecolor: colour("--link") },
      xaxis: { ...axis, title: { text: "step", standoff: 8 } }, yaxis: { ...axis, rangemode: "tozero" },
    };
  }

  async function wake(figure, chart) {
    if (!window.DecompressionStream) return;
    const place = document.createElement("div");
    place.className = "live-plot";
    try {
      library = library || unpackPlotly();
      const plotly = await library;
      const draw = () => plotly.react(place, traces(chart), layout(), settings);
      figure.querySelector(".plot").after(place);
      figure.classList.add("live");
      await draw();
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    } catch (broken) {
      figure.classList.remove("live");
      place.remove();
      console.warn("charts stay still:", broken);
    }
  }

  function watchCharts() {
    const held = document.getElementById("data");
    if (!held || !window.IntersectionObserver) return;
    const charts = new Map(JSON.parse(held.textContent).charts.map((chart) => [chart.id, chart]));
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries.filter((one) => one.isIntersecting)) {
        seen.unobserve(entry.target);
        wake(entry.target, charts.get(entry.target.id));
      }
    });
    for (const figure of document.querySelectorAll("figure.chart")) seen.observe(figure);
  }

  wakeCopyButtons();
  addEventListener("hashchange", openLinked);
  addEventListener("beforeprint", openForPrint);
  addEventListener("DOMContentLoaded", () => { openLinked(); watchCharts(); });
})();
