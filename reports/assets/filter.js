// The list of findings, filtered and searched. Without this script all of it is there.
(() => {
  const bar = document.querySelector(".filter");
  if (!bar) return;
  const findings = [...document.querySelectorAll("article[data-severity]")];
  const words = document.getElementById("filter-words"), patch = document.getElementById("filter-patch");
  const choices = [...bar.querySelectorAll("select")];
  const said = document.getElementById("filtered"), all = document.getElementById("open-all");
  const texts = new Map();

  // What a finding says of itself; the manual of its rule says the same in each of them.
  function textOf(finding) {
    if (!texts.has(finding)) {
      const parts = finding.querySelectorAll("summary, .message, .where, pre.code, .facts, .parts, .fix");
      texts.set(finding, [...parts].filter((part) => !part.closest("footer")).map((part) => part.textContent).join(" ").toLowerCase());
    }
    return texts.get(finding);
  }

  function fits(finding, wanted) {
    return choices.every((choice) => choice.value === "*" || finding.dataset[choice.dataset.by] === choice.value)
      && !(patch?.checked && finding.dataset.patch !== "yes")
      && wanted.every((word) => textOf(finding).includes(word));
  }

  function filter() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const finding of findings) finding.hidden = !fits(finding, wanted);
    const left = findings.filter((finding) => !finding.hidden).length;
    said.textContent = left === findings.length ? "" : `${left} of ${findings.length} shown`;
    told();
  }

  function clear() {
    words.value = "";
    for (const choice of choices) choice.value = "*";
    if (patch) patch.checked = false;
    filter();
  }

  const rows = () => findings.filter((finding) => !finding.hidden).map((finding) => finding.querySelector("details.row"));
  function told() {
    all.textContent = rows().length && rows().every((row) => row.open) ? "Close all" : "Open all";
  }

  bar.hidden = false;
  bar.addEventListener("input", filter);
  bar.addEventListener("change", filter);
  bar.addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });
  all.addEventListener("click", () => {
    const open = all.textContent === "Open all";
    for (const row of rows()) row.open = open;
  });
  for (const finding of findings) finding.querySelector("details.row").addEventListener("toggle", told);
  // A link to a finding that is filtered out leads to it all the same.
  addEventListener("linked", (event) => { if (event.target.hidden) clear(); });
})();
