// The page is whole without this script: it adds copy buttons and opens folded parts that are linked to.
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
    linked.closest("article")?.dispatchEvent(new Event("linked", { bubbles: true }));
    const folded = linked.matches("details") ? [linked] : [...linked.querySelectorAll(":scope > details")];
    for (let part = linked; part; part = part.parentElement?.closest("details")) if (part.matches("details")) folded.push(part);
    for (const part of folded) part.open = true;
    if (linked.matches("article, details")) linked.scrollIntoView();
  }

  // Paper has no clicks: all is open on it, and folded again afterwards.
  let unfolded = [];
  function openForPrint() {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    for (const part of unfolded) part.open = true;
  }
  function foldAgain() {
    for (const part of unfolded) part.open = false;
    unfolded = [];
  }

  // In audit view the page around this one says which findings can be seen in its trace; it shows what is asked for.
  function showTraced(told) {
    if (parent === window || told.source !== parent || !Array.isArray(told.data?.traced)) return;
    for (const finding of document.querySelectorAll("article[data-key]")) {
      const line = finding.querySelector(".traced");
      if (!line || !told.data.traced.includes(finding.dataset.key)) continue;
      line.hidden = false;
      line.querySelector("button").onclick = () => parent.postMessage({finding: finding.dataset.key}, "*");
    }
  }

  // A page that was opened from a disk knows its folder: the commands name it as a shell takes it. A
  // page that was copied out of the audit's folder does not: what stands beside it is no report.
  function nameFolder() {
    const own = decodeURIComponent(location.pathname);
    if (location.protocol !== "file:" || !own.startsWith("/") || /[\u0000-\u001f]/.test(own)) return;
    const folder = own.slice(0, Math.max(1, own.lastIndexOf("/")));
    const said = document.getElementById("folder-said");
    if (!said || folder.slice(folder.lastIndexOf("/") + 1) !== said.dataset.folder) return;
    const quoted = /^[\w@%+=:,./-]+$/.test(folder) ? folder : `'${folder.replaceAll("'", `'"'"'`)}'`;
    for (const each of document.querySelectorAll(".commands .folder")) each.textContent = quoted;
    said.textContent = "Run the commands where the audit ran.";
  }

  nameFolder();
  wakeCopyButtons();
  addEventListener("message", showTraced);
  addEventListener("hashchange", openLinked);
  addEventListener("beforeprint", openForPrint);
  addEventListener("afterprint", foldAgain);
  addEventListener("DOMContentLoaded", openLinked);
})();
