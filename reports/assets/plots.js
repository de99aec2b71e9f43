// Only in pages that were asked to hold plotly: each chart becomes one of plotly's when it is looked at.
(() => {
  const root = document.documentElement;
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

  // A row's name in lines that fit beside a chart on a phone.
  function inLines(name) {
    const made = [""];
    for (const word of name.split(" ").flatMap((one) => one.match(/.{1,17}/gu) ?? [])) {
      const longer = `${made.at(-1)} ${word}`.trim();
      if (longer.length > 17 && made.at(-1)) made.push(word); else made[made.length - 1] = longer;
    }
    return made.map(plain).join("<br>");
  }

  function axis(more) {
    return { gridcolor: colour("--rule"), zerolinecolor: colour("--rule"), linecolor: colour("--rule"), ...more };
  }

  function layout(chart, more) {
    const ink = colour("--quiet");
    return {
      height: 272, margin: { l: 56, r: 8, t: 30, b: 40 }, showlegend: false, hovermode: "closest", dragmode: "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: colour("--sans"), size: 12, color: ink },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: ink, activecolor: colour("--link") },
      xaxis: axis({ title: { text: plain(chart.xLabel || "step"), standoff: 8 } }), yaxis: axis({ rangemode: "tozero" }), ...more,
    };
  }

  // ---- lines by step ----------------------------------------------------------------------------------------------

  function lines(chart) {
    const drawn = chart.lines.map((line) => ({
      type: "scatter", mode: line.x.length > 80 ? "lines" : "lines+markers", name: plain(line.name), x: line.x, y: line.y,
      line: { width: 1.6, dash: line.dash, color: colour("--s" + line.colour) }, marker: { size: 4 },
      hovertemplate: "step %{x}: %{y:.4~r} " + plain(chart.unit),
    }));
    const shapes = chart.ended ? [{
      type: "line", x0: chart.ended.x, x1: chart.ended.x, yref: "paper", y0: 0, y1: 1, line: { width: 2, color: colour("--error") },
    }] : [];
    return { traces: drawn, layout: layout(chart, { shapes }) };
  }

  // ---- memory in layers -------------------------------------------------------------------------------------------

  function layers(chart) {
    const traces = chart.layers.map((layer) => ({
      type: "scatter", mode: "lines", stackgroup: "held", name: plain(layer.name), x: chart.x, y: layer.y,
      line: { width: 0, shape: "hv" }, fillcolor: colour("--" + layer.shade),
      hovertemplate: "%{y:.4~r} " + plain(chart.unit),
    }));
    traces.push({
      type: "scatter", mode: "lines", name: "reserved", x: chart.x, y: chart.reserved,
      line: { width: 1.4, dash: "dash", shape: "hv", color: colour("--ink") }, hovertemplate: "%{y:.4~r} " + plain(chart.unit),
    });
    const shapes = chart.marks.map((mark) => ({
      type: "line", x0: mark.x, x1: mark.x, yref: "paper", y0: 0, y1: 1,
      line: { width: 1, color: colour(mark.label === "out of memory" ? "--error" : "--quiet"), dash: "dot" },
    }));
    return {
      traces,
      layout: layout(chart, {
        height: chart.height + 62, shapes, margin: { l: 64, r: 8, t: 30, b: 40 },
        yaxis: axis({ rangemode: "tozero", title: { text: plain(chart.unit), standoff: 4 } }), hovermode: "x unified",
        hoverlabel: { bgcolor: colour("--paper"), bordercolor: colour("--rule"), font: { size: 11, color: colour("--ink") } },
      }),
    };
  }

  // ---- bars of the parts of steps ----------------------------------------------------------------------------------------------

  function parts(chart) {
    const traces = chart.groups.map((group) => ({
      type: "bar", orientation: "h", name: plain(group.name), y: group.row, x: group.length, base: group.base, width: 0.78,
      customdata: group.label.map(plain), marker: { color: colour("--" + group.shade), line: { width: 0 } },
      hovertemplate: "%{customdata}<extra>" + plain(group.name) + "</extra>", textposition: "none",
    }));
    const ticks = chart.names.map((_, index) => index);
    return {
      traces,
      layout: layout(chart, {
        height: chart.height + 70, barmode: "overlay",
        margin: { l: innerWidth < 620 ? 114 : 132, r: 8, t: 30, b: 40 },
        xaxis: axis({ title: { text: plain(chart.xLabel), standoff: 8 }, range: [0, chart.right] }),
        yaxis: axis({
          range: [chart.names.length - 0.5, -0.5], tickvals: ticks, ticktext: chart.names.map(innerWidth < 620 ? inLines : plain), fixedrange: true, showgrid: false,
          zeroline: false,
        }),
      }),
    };
  }

  const kinds = { layers, parts };

  async function wake(figure, chart) {
    if (!window.DecompressionStream) return;
    const place = document.createElement("div");
    place.className = "live-plot";
    try {
      library = library || unpackPlotly();
      const plotly = await library;
      const draw = () => {
        const made = (kinds[chart.kind] || lines)(chart);
        place.style.height = made.layout.height + "px";
        return plotly.react(place, made.traces, made.layout, settings);
      };
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

  addEventListener("DOMContentLoaded", watchCharts);
})();
