// Figures answer questions: values under the pointer or by the arrow keys, a closer look, a table. Without this script they stay pictures.
(() => {
  const held = document.getElementById("data");
  if (!held) return;
  const WIDE = 1000, HIGH = 300, ROWS = 1000, LISTED = 12, CLOSEST = 1e-4, DRAGGED = 6;
  let known = null;

  function chartOf(id) {
    known ??= new Map(JSON.parse(held.textContent).charts.map((chart) => [chart.id, chart]));
    return known.get(id);
  }

  function made(tag, name, text = "") {
    const element = document.createElement(tag);
    element.className = name;
    element.textContent = text;
    return element;
  }

  const digits = (value) => String(Number(value.toPrecision(4)));
  const inUnit = (chart, value) => `${digits(value)} ${chart.unit}`.trim();

  function swatch(shade) {
    const [svg, path] = ["svg", "path"].map((tag) => document.createElementNS(document.querySelector("svg").namespaceURI, tag));
    svg.setAttribute("class", "swatch");
    svg.setAttribute("viewBox", "0 0 24 8");
    svg.setAttribute("aria-hidden", "true");
    const stroked = /^(line|reserved)/.test(shade);
    path.setAttribute("class", stroked ? shade : `fill ${shade}`);
    path.setAttribute("d", stroked ? "M0 4H24" : "M0 0H24V8H0z");
    svg.append(path);
    return svg;
  }

  // How many of the sorted values are at most x.
  function upTo(values, x) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] <= x) low = middle + 1; else high = middle;
    }
    return low;
  }

  function nearest(values, x) {
    const after = upTo(values, x);
    const two = [values[after - 1], values[after]].filter((value) => value !== undefined);
    return two.sort((one, other) => Math.abs(one - x) - Math.abs(other - x))[0];
  }

  // ---- what each kind of figure tells: places to stop at, what is at a place, its table -------------------------------

  const lines = {
    stops: (chart) => [...new Set(chart.lines.flatMap((line) => line.x))].sort((one, other) => one - other),
    at(chart, x) {
      const place = nearest(this.stops(chart), x), rows = [];
      for (const line of chart.lines) {
        const index = line.x.indexOf(place);
        if (index < 0 || line.y[index] === null) continue;
        rows.push([`line line-${line.colour}`, line.name, inUnit(chart, line.y[index])]);
      }
      return { place, rows };
    },
    table(chart, axis) {
      const columns = chart.lines.map((line) => new Map(line.x.map((x, index) => [x, line.y[index]])));
      const cell = (column, x) => (column.has(x) && column.get(x) !== null ? digits(column.get(x)) : "");
      return {
        heads: [axis, ...chart.lines.map((line) => `${line.name}, ${chart.unit}`)],
        rows: this.stops(chart).map((x) => [digits(x), ...columns.map((column) => cell(column, x))]),
      };
    },
  };

  const layers = {
    stops: (chart) => chart.x,
    at(chart, x) {
      const index = Math.max(0, upTo(chart.x, x) - 1), place = chart.x[index];
      const rows = chart.layers.map((layer) => [layer.shade, layer.name, inUnit(chart, layer.y[index])]).reverse();
      rows.push(["reserved", "reserved", inUnit(chart, chart.reserved[index])]);
      return { place, rows };
    },
    table: (chart, axis) => ({
      heads: [axis, ...chart.layers.map((layer) => `${layer.name}, ${chart.unit}`), `reserved, ${chart.unit}`],
      rows: chart.x.map((x, index) => [x, ...chart.layers.map((layer) => layer.y[index]), chart.reserved[index]].map(digits)),
    }),
  };

  const parts = {
    bars(chart) {
      chart.bars ??= chart.groups.flatMap((group) => group.base.map((base, index) => ({
        base, length: group.length[index], row: group.row[index], label: group.label[index], name: group.name, shade: group.shade,
      }))).sort((one, other) => one.base - other.base);
      return chart.bars;
    },
    stops(chart, row) { return this.bars(chart).filter((bar) => bar.row === row).map((bar) => bar.base); },
    at(chart, x, row, reach) {
      const near = this.bars(chart).filter((bar) => bar.row === row && bar.base - reach <= x && x <= bar.base + bar.length + reach);
      const inside = near.filter((bar) => bar.base <= x && x < bar.base + bar.length);
      const rows = (inside.length ? inside : near).map((bar) => [bar.shade, bar.name, bar.label]);
      return { place: x, where: chart.names[row], rows: rows.length ? rows : [["tone-none", "nothing there", ""]] };
    },
    table(chart) {
      const longest = [...this.bars(chart)].sort((one, other) => other.length - one.length);
      return {
        heads: ["row", "what", "kind", `from, ${chart.unit}`, `length, ${chart.unit}`], words: true,
        rows: longest.map((bar) => [chart.names[bar.row], bar.label, bar.name, digits(bar.base), digits(bar.length)]),
      };
    },
  };

  const kinds = { lines, layers, parts };

  // ---- the table ------------------------------------------------------------------------------------------------------

  function tableOf(figure, chart, axis) {
    const { heads, rows, words } = kinds[chart.kind].table(chart, axis);
    const table = made("table", words ? "operators words figures" : "operators figures"), head = table.createTHead().insertRow();
    for (const word of heads) head.append(Object.assign(made("th", "", word), { scope: "col" }));
    const body = table.createTBody();
    for (const cells of rows.slice(0, ROWS)) {
      const row = body.insertRow();
      row.append(Object.assign(made("th", "", cells[0]), { scope: "row" }));
      for (const cell of cells.slice(1)) row.append(made("td", "", cell));
    }
    const frame = made("div", "scroll");
    frame.tabIndex = 0;
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", `Values: ${figure.querySelector("h3").textContent}`);
    frame.append(table);
    const order = words ? "longest" : "first";
    const left = rows.length > ROWS ? [made("p", "thinned", `The ${order} ${ROWS} of ${rows.length}; report.json holds the rest.`)] : [];
    return [frame, ...left];
  }

  // A button and what it opens: made when it is asked for, and never printed.
  function valuesOf(figure, chart, axis) {
    const button = Object.assign(made("button", "tool", "Values as a table"), { type: "button" }), part = made("div", "values");
    part.hidden = true;
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      if (!part.childElementCount) part.append(...tableOf(figure, chart(), axis));
      part.hidden = !part.hidden;
      button.setAttribute("aria-expanded", String(!part.hidden));
    });
    return [button, part];
  }

  // ---- one figure -----------------------------------------------------------------------------------------------------

  class Figure {
    constructor(figure) {
      this.figure = figure;
      this.plot = figure.querySelector(".plot");
      this.svg = this.plot.querySelector("svg");
      this.axis = this.plot.querySelector(".x i").textContent;
      this.still = [...this.plot.querySelectorAll(".x span")];
      this.row = 0;
      this.over = made("div", "over");
      this.over.tabIndex = 0;
      this.over.setAttribute("role", "application");
      this.over.setAttribute("aria-label", `${figure.querySelector("h3").textContent}: arrow keys read values, plus and minus zoom, Escape shows all`);
      this.cursor = made("div", "cursor");
      this.band = made("div", "band");
      this.tip = made("div", "tip");
      this.tip.setAttribute("role", "status");
      this.over.append(this.band, this.cursor, this.tip);
      this.forget();
      this.plot.append(this.over);
      const under = made("div", "under");
      const [button, values] = valuesOf(figure, () => this.chart, this.axis);
      under.append(button, this.tools(), values);
      figure.append(under);
      this.listen();
    }

    get chart() { return chartOf(this.figure.id); }
    get kind() { return kinds[this.chart.kind]; }
    get across() { return (this.chart.xLabel ?? "step").split(", "); }
    get view() { return this.seen ?? this.chart.span; }

    tools() {
      const tools = made("div", "tools");
      for (const [sign, said, act] of [["+", "Zoom in", () => this.zoom(0.5)], ["−", "Zoom out", () => this.zoom(2)], ["All", "Show all", () => this.show(...this.chart.span)]]) {
        const button = Object.assign(made("button", "tool", sign), { type: "button", title: said });
        button.setAttribute("aria-label", `${said}: ${this.figure.querySelector("h3").textContent}`);
        button.addEventListener("click", act);
        tools.append(button);
      }
      tools.title = "Or drag across the figure";
      return tools;
    }

    listen() {
      this.over.addEventListener("pointerdown", (event) => { this.from = event.clientX; if (event.pointerType === "touch") this.point(event); });
      this.over.addEventListener("pointermove", (event) => this.point(event));
      this.over.addEventListener("pointerleave", () => this.forget());
      this.over.addEventListener("pointercancel", () => this.forget());
      this.over.addEventListener("pointerup", (event) => this.dragged(event));
      this.over.addEventListener("dblclick", () => this.show(...this.chart.span));
      this.over.addEventListener("keydown", (event) => this.key(event));
      this.over.addEventListener("blur", () => this.forget());
    }

    forget() {
      this.from = null;
      for (const part of [this.band, this.cursor, this.tip]) part.hidden = true;
    }

    share(clientX) {
      const at = this.over.getBoundingClientRect();
      return Math.min(1, Math.max(0, (clientX - at.left) / (at.width || 1)));
    }

    value(clientX) { return this.view[0] + this.share(clientX) * (this.view[1] - this.view[0]); }

    point(event) {
      const at = this.over.getBoundingClientRect();
      if (this.chart.kind === "parts") this.row = Math.min(this.chart.names.length - 1, Math.max(0, Math.floor((event.clientY - at.top) / at.height * this.chart.names.length)));
      const pulled = this.from !== null && event.buttons && Math.abs(event.clientX - this.from) > DRAGGED;
      this.band.hidden = !pulled;
      if (pulled) {
        const [low, high] = [this.share(this.from), this.share(event.clientX)].sort((one, other) => one - other);
        this.band.style.left = `${100 * low}%`;
        this.band.style.width = `${100 * (high - low)}%`;
      }
      this.tell(this.value(event.clientX));
    }

    dragged(event) {
      const from = this.from;
      this.from = null;
      this.band.hidden = true;
      if (from === null || Math.abs(event.clientX - from) <= DRAGGED) return;
      this.show(...[this.value(from), this.value(event.clientX)].sort((one, other) => one - other));
    }

    key(event) {
      const act = {
        ArrowRight: () => this.walk(1), ArrowLeft: () => this.walk(-1), ArrowDown: () => this.change(1), ArrowUp: () => this.change(-1),
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), Escape: () => this.show(...this.chart.span),
      }[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      if (/Up|Down/.test(event.key) && this.chart.kind !== "parts") return;
      event.preventDefault();
      act();
    }

    walk(by) {
      const [low, high] = this.view, stops = this.kind.stops(this.chart, this.row).filter((x) => x >= low && x <= high);
      if (!stops.length) return this.tell(low);
      const now = this.cursor.hidden ? (by > 0 ? -Infinity : Infinity) : this.place;
      const next = by > 0 ? stops.find((x) => x > now) : stops.findLast((x) => x < now);
      return this.tell(next ?? (by > 0 ? stops.at(-1) : stops[0]));
    }

    change(by) {
      this.row = Math.min(this.chart.names.length - 1, Math.max(0, this.row + by));
      this.tell(this.cursor.hidden ? this.view[0] : this.place);
    }

    tell(x) {
      const [low, high] = this.view, reach = 3 * (high - low) / (this.over.clientWidth || WIDE);
      const { place, where, rows } = this.kind.at(this.chart, x, this.row, reach);
      if (place === undefined) return;
      this.place = place;
      const [what, inWhat] = this.across, said = inWhat ? `${digits(place)} ${inWhat}` : `${what} ${digits(place)}`;
      this.tip.replaceChildren(made("b", "", where ? `${where}, ${said}` : said), ...rows.slice(0, LISTED).map(([shade, name, amount]) => {
        const row = made("p", "");
        row.append(swatch(shade), made("span", "", name), made("b", "", amount));
        return row;
      }));
      if (rows.length > LISTED) this.tip.append(made("p", "", `and ${rows.length - LISTED} more`));
      this.tip.hidden = this.cursor.hidden = false;
      const at = 100 * (place - low) / (high - low || 1);
      this.cursor.hidden = at < 0 || at > 100;
      this.cursor.style.left = `${at}%`;
      this.tip.style.left = at < 50 ? `calc(${Math.max(0, at)}% + 10px)` : "auto";
      this.tip.style.right = at < 50 ? "auto" : `calc(${Math.max(0, 100 - at)}% + 10px)`;
    }

    // ---- a closer look

    zoom(factor) {
      const [low, high] = this.view;
      const middle = this.cursor.hidden ? (low + high) / 2 : this.place, half = (high - low) * factor / 2;
      this.show(middle - half, middle + half);
    }

    show(low, high) {
      const [first, last] = this.chart.span, whole = last - first || 1;
      const wide = Math.min(whole, Math.max(high - low, whole * CLOSEST));
      const from = Math.min(Math.max(low, first), last - wide);
      this.seen = [from, from + wide];
      const closer = wide < whole;
      this.figure.classList.toggle("zoomed", closer);
      if (closer) this.sharpen();
      this.svg.setAttribute("viewBox", `${WIDE * (from - first) / whole} 0 ${WIDE * wide / whole} ${HIGH}`);
      this.tick(closer);
      this.forget();
    }

    // The picture has as many points as a screen has columns; a closer look takes all that are known.
    sharpen() {
      if (this.sharp || this.chart.kind !== "lines") return;
      this.sharp = true;
      const { span: [left, right], rise: [low, high] } = this.chart;
      [...this.svg.querySelectorAll(".line")].forEach((path, number) => {
        const line = this.chart.lines[number];
        let drawing = false;
        path.setAttribute("d", line.x.map((x, index) => {
          const y = line.y[index], lifted = !drawing;
          drawing = y !== null;
          return drawing ? `${lifted ? "M" : "L"}${WIDE * (x - left) / (right - left)} ${HIGH * (1 - (y - low) / (high - low))}${lifted ? "h0" : ""}` : "";
        }).join(""));
      });
    }

    tick(closer) {
      const labels = this.plot.querySelector(".x");
      for (const old of labels.querySelectorAll("span")) old.remove();
      const [low, high] = this.view;
      labels.prepend(...(closer ? ticks(low, high, this.across[1] ? 0 : 1).map((x) => {
        const label = made("span", "", digits(x));
        const at = (x - low) / (high - low);
        label.style.left = `${100 * at}%`;
        label.classList.toggle("end", at > 0.98);
        return label;
      }) : this.still));
    }
  }

  // Round numbers from low to high, about eight; "least" apart.
  function ticks(low, high, least) {
    const rough = (high - low) / 8, power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(least, [1, 2, 5, 10].find((nice) => nice * power >= rough) * power);
    const found = [];
    for (let number = Math.ceil(low / step - 1e-9); number * step <= high * (1 + 1e-12); number += 1) found.push(number * step);
    return found;
  }

  addEventListener("DOMContentLoaded", () => {
    for (const figure of document.querySelectorAll("figure.chart")) new Figure(figure);
  });
})();
