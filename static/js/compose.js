/* Pages of a draft: character counters, searching in a long list, and arrow keys to the next contact. */
(() => {
  "use strict";
  document.addEventListener("input", (event) => {
    const field = event.target;
    const count = field.dataset?.count && document.getElementById(field.dataset.count);
    // What a merge tag becomes is known to the server, whose answer to the save has the number.
    if (count && !/\{[{%]/.test(field.value)) {
      const soft = Number(count.dataset.soft), long = [...field.value].length;
      count.textContent = long > soft ? t("%(number)s · phones show about %(limit)s", { number: long, limit: soft }) : String(long);
    }
    const rows = field.dataset?.narrows && document.getElementById(field.dataset.narrows);
    if (rows) {
      event.stopPropagation();
      const word = field.value.trim().toLowerCase();
      for (const row of rows.children) row.hidden = word !== "" && !row.textContent.toLowerCase().includes(word);
    }
  }, true);

  // What a field refused is not saved, so the review would be of another campaign than the one on the page.
  document.addEventListener("htmx:before:request", (event) => {
    const field = event.target.matches?.("a[data-review]") && document.querySelector("#composer [aria-invalid=true]");
    if (!field) return;
    event.preventDefault();
    field.closest("details")?.setAttribute("open", "");
    field.focus();
  });

  // In a dialog the way back is to close it; as a page of its own it is a link.
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("dialog a[data-close]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    link.closest("dialog").close();
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
    const way = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
    document.querySelector(way ? `[data-step=${way}]` : "nothing")?.click();
  });
})();
