// What axe-core asks of the theme: each row of buttons beside code has a name of its own, and what scrolls is reached by keyboard.
(() => {
  const name = () => {
    document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((row) => {
      const number = [...document.querySelectorAll("nav.md-code__nav")].indexOf(row) + 1;
      row.setAttribute("aria-label", `Code ${number}`);
    });
    document.querySelectorAll(".md-sidebar__scrollwrap:not([tabindex])").forEach((part) => part.setAttribute("tabindex", "0"));
  };
  new MutationObserver(name).observe(document.documentElement, { childList: true, subtree: true });
  name();
})();
