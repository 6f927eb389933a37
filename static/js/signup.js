/* The fields of a sign-up form: sorting them by dragging and with the arrow keys. */
(() => {
  "use strict";
  const settle = (row) => {
    const all = [...row.parentElement.children];
    document.querySelector("[data-moved]").textContent = t("Field %(position)s of %(total)s", { position: all.indexOf(row) + 1, total: all.length });
    row.dispatchEvent(new Event("input", { bubbles: true }));
  };
  document.addEventListener("htmx:after:swap", ({ detail: { ctx } }) => {
    if (ctx.target?.id !== "sign") return;
    // A swap leaves open and closed what was, so that a field with an error would stay closed.
    for (const details of document.querySelectorAll("[data-field] details:has([aria-invalid])")) details.open = true;
    // A preview that was requested before the swap may arrive after it, so that the last one is requested again.
    document.getElementById("sign").dispatchEvent(new Event("input", { bubbles: true }));
  });
  // The field that was added is what its author writes next.
  let isAdding = false;
  document.addEventListener("click", ({ target }) => {
    if (!target.closest?.("#add-field button")) return;
    document.getElementById("add-field").hidePopover();
    isAdding = true;
  }, true);
  document.addEventListener("htmx:after:swap", ({ detail: { ctx } }) => {
    if (!isAdding || ctx.target?.id !== "sign") return;
    isAdding = false;
    const row = document.querySelector(".fieldrows > :last-child");
    row.querySelector("details").open = true;
    row.querySelector("[name^='label-']").focus();
  });
  document.addEventListener("keydown", (event) => {
    const grip = event.target.closest?.("[data-field] > [data-grip]"), row = grip?.parentElement;
    const other = row && { ArrowUp: row.previousElementSibling, ArrowDown: row.nextElementSibling }[event.key];
    if (!other) return;
    event.preventDefault();
    event.key === "ArrowUp" ? other.before(row) : other.after(row);
    grip.focus();
    settle(row);
  });
  document.addEventListener("pointerdown", (event) => {
    const grip = event.target.closest?.("[data-field] > [data-grip]"), row = grip?.parentElement;
    if (!row || event.button) return;
    const before = row.nextElementSibling;
    grip.setPointerCapture(event.pointerId);
    row.classList.add("held");
    // The neighbours move, because an element that is taken out of the page loses the pointer. A tall one changes places
    // once the pointer is so far inside that it would not jump back.
    const move = ({ clientY: y }) => {
      for (;;) {
        const { previousElementSibling: above, nextElementSibling: below } = row, own = row.offsetHeight;
        const high = above?.getBoundingClientRect(), low = below?.getBoundingClientRect();
        if (high && y < high.top + Math.min(high.height, own)) row.after(above);
        else if (low && y > low.bottom - Math.min(low.height, own)) row.before(below);
        else return;
      }
    };
    grip.addEventListener("pointermove", move);
    grip.addEventListener("lostpointercapture", () => {
      grip.removeEventListener("pointermove", move);
      row.classList.remove("held");
      if (row.nextElementSibling !== before) settle(row);
    }, { once: true });
  });
})();
