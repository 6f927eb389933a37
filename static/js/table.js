/* Selecting rows of a table: ranges, whole pages, keys, and the number of selected rows. Checkboxes work without it. */
(() => {
  "use strict";
  // A row is a line of a table, a card, or an entry of a list; each leads somewhere
  const ROW = "tr, .tile, .list > li, .timeline > li", BOX = ".choose input:not([data-page])";
  const findLink = (row) => row.querySelector("a.name, .list a, .timeline :is(a, summary)");
  const form = () => document.querySelector("#rows:has(.choose)");
  const boxes = () => [...(form()?.querySelectorAll(BOX) || [])];
  let last = null;

  const number = new Intl.NumberFormat(document.documentElement.lang).format;
  const updateCount = () => {
    const table = form();
    if (!table) return;
    const all = table.querySelector("[name=all]"), mark = table.querySelector("[data-page]"), count = table.querySelector(".count");
    const every = boxes(), chosen = every.filter((box) => box.checked).length;
    if (mark) {
      mark.checked = every.length > 0 && chosen === every.length;
      mark.indeterminate = chosen > 0 && chosen < every.length;
    }
    if (!count) return;
    const much = all?.checked ? all.dataset.all : number(chosen);
    const text = t("%(number)s selected", { number: much });
    if (count.textContent !== text) count.textContent = text;
  };
  const set = (some, value) => {
    for (const box of some) box.checked = value;
    const all = form()?.querySelector("[name=all]");
    if (all && !value) all.checked = false;
    updateCount();
  };
  // From the box that was touched last to this one, all become what this one is
  const range = (box) => {
    const every = boxes(), from = every.indexOf(last), to = every.indexOf(box);
    if (from >= 0 && to >= 0) set(every.slice(Math.min(from, to), Math.max(from, to) + 1), box.checked);
  };
  const clear = () => {
    const back = document.activeElement?.closest(".bulk");
    set(boxes(), false);
    if (back) (last?.isConnected ? last : document.querySelector("#search"))?.focus();
  };

  document.addEventListener("click", (event) => {
    const box = event.target.closest?.(BOX);
    if (box && event.shiftKey) range(box);
    if (box) last = box;
    if (event.target.closest?.("[data-clear]")) clear();
  });
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.matches("[data-page]")) set(boxes(), box.checked);
    if (box.matches("[name=all]")) set(boxes(), box.checked);
    if (box.matches(BOX)) set([box], box.checked);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open], :popover-open")) return;
    if (event.key === "Escape" && boxes().some((box) => box.checked)) { event.preventDefault(); clear(); return; }
    if (document.body.dataset.keys === "off" || event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    if (event.key === "j" || event.key === "k") {
      const ways = [...document.querySelectorAll(ROW)].map(findLink).filter(Boolean), row = event.target.closest?.(ROW);
      const next = ways[(row ? ways.indexOf(findLink(row)) : -1) + (event.key === "j" ? 1 : -1)];
      if (next) { event.preventDefault(); next.focus(); }
    }
    const box = (event.key === "x" || event.key === "X") && event.target.closest?.(ROW)?.querySelector(BOX);
    if (!box) return;
    box.checked = event.shiftKey ? true : !box.checked;
    if (event.shiftKey) range(box);
    set([box], box.checked);
    last = box;
  });
  document.addEventListener("htmx:after:swap", updateCount);
  addEventListener("pageshow", updateCount);
  updateCount();
})();
