/* The tree of a flow: the menu at each +, keys, and dragging steps. */
(() => {
  "use strict";
  const tree = () => document.getElementById("tree");
  const path = () => `/flows/${tree().dataset.flow}`;
  const canEdit = () => tree()?.dataset.edit === "";
  const names = () => [...tree().querySelectorAll(".node .n")];

  const request = (verb, url, values) => htmx.ajax(verb, path() + url, { target: "#panel", swap: "outerMorph", headers: { "HX-Target": "aside#panel" }, values });
  const move = async (step, to) => {
    await request("POST", `/steps/${step}/move`, { to });
    const at = tree().querySelector(`li[data-step="${step}"]`), all = [...(at?.parentElement.children || [])];
    at?.querySelector(".n").focus();
    if (at) document.getElementById("move-status").textContent = t("%(name)s: %(position)s of %(total)s", { name: at.dataset.name, position: all.indexOf(at) + 1, total: all.length });
  };

  const open = (plus) => {
    const menu = document.getElementById("add-menu");
    if (!menu?.showPopover) return false;
    menu.querySelector("[name=at]").value = plus.dataset.at;
    menu.showPopover();
    const at = plus.getBoundingClientRect(), room = innerHeight - at.bottom > menu.offsetHeight + 8;
    menu.style.inset = `${room ? at.bottom + 4 : Math.max(8, at.top - menu.offsetHeight - 4)}px auto auto ${Math.min(at.left, document.documentElement.clientWidth - menu.offsetWidth - 8)}px`;
    menu.querySelector("button").focus();
    return true;
  };
  document.addEventListener("click", (event) => {
    const plus = event.target.closest?.(".plus");
    if (plus && !event.ctrlKey && !event.metaKey && open(plus)) event.preventDefault();
  });

  // Arrows go to the nearest step in their direction; with Alt they move the step.
  const findNearest = (from, key) => {
    const middle = (name) => { const at = name.closest(".node").getBoundingClientRect(); return [at.left + at.width / 2, at.top + at.height / 2]; };
    const [x, y] = middle(from), side = key === "ArrowLeft" || key === "ArrowRight", sign = key === "ArrowUp" || key === "ArrowLeft" ? -1 : 1;
    let best = null, least = Infinity;
    for (const name of names()) {
      const [a, b] = middle(name), along = sign * (side ? a - x : b - y), beside = Math.abs(side ? b - y : a - x);
      if (along > 8 && along + 3 * beside < least) [best, least] = [name, along + 3 * beside];
    }
    return best;
  };
  const keys = {
    a: (step) => tree().querySelector(step ? `.plus[data-at="after-${step}"]` : ".plus").click(),
    Delete: async (step) => {
      if (!step) return;
      await request("GET", `?step=${step}`);
      document.getElementById("remove-step").click();
    },
  };
  document.addEventListener("keydown", (event) => {
    const name = event.target.closest?.(".node .n"), by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const kinds = [...(event.target.closest?.("#add-menu")?.querySelectorAll("button") || [])];
    if (by && kinds.length) {
      kinds.at((kinds.indexOf(event.target) + by) % kinds.length).focus();
      return event.preventDefault();
    }
    if (event.key === "Escape" && event.target.closest?.("#panel form")) tree().querySelector(".on .n")?.focus();
    if (!name || event.ctrlKey || event.metaKey) return;
    const step = name.closest("li")?.dataset.step;
    if (event.key.startsWith("Arrow")) {
      event.preventDefault();
      if (!event.altKey) return findNearest(name, event.key)?.focus();
      if (canEdit() && step && by) move(step, by < 0 ? "up" : "down");
    } else if (canEdit() && !event.altKey && keys[event.key]) {
      event.preventDefault();
      keys[event.key](step);
    }
  });

  const sorts = new WeakSet();
  const draw = () => {
    if (!canEdit() || !window.Sortable) return;
    for (const list of tree().querySelectorAll(".way")) {
      if (sorts.has(list)) continue;
      sorts.add(list);
      Sortable.create(list, {
        animation: 150, delay: 150, delayOnTouchOnly: true, handle: ".node", ghostClass: "moved",
        onEnd: ({ item: moved, oldIndex, newIndex, originalEvent }) => {
          // A drag that ends without a drop (Escape, let go elsewhere) moves nothing
          if (originalEvent?.type === "dragend" && originalEvent.dataTransfer.dropEffect === "none") {
            if (oldIndex !== newIndex) list.insertBefore(moved, [...list.children].filter((sibling) => sibling !== moved)[oldIndex] || null);
            return;
          }
          const before = moved.previousElementSibling;
          if (oldIndex !== newIndex) move(moved.dataset.step, before ? `after-${before.dataset.step}` : list.dataset.first);
        },
      });
    }
  };
  // The form of a step that was not saved is asked about before another panel takes its place.
  document.addEventListener("htmx:before:request", (event) => {
    const { ctx } = event.detail, form = document.getElementById("step-form");
    if (ctx.target?.id === "panel" && !form?.contains(ctx.sourceElement) && !window.mayLeave(form)) event.preventDefault();
  });
  // What was chosen comes into sight; who chose it by a key goes on in its form.
  const panel = () => document.getElementById("panel");
  let isKeyboard = false;
  const show = () => innerWidth <= 1080 && panel().scrollIntoView();
  document.addEventListener("htmx:after:swap", ({ detail: { ctx } }) => {
    draw();
    const form = document.querySelector("#step-form[data-unsaved]");
    if (ctx.target?.id === "panel" && form) window.guard(form);
    if (ctx.target?.id !== "panel" || ctx.request?.method !== "GET") return;
    show();
    if (isKeyboard) [...panel().querySelectorAll("form :is([contenteditable], input, select, textarea)")].find((field) => field.offsetParent)?.focus();
  });
  document.addEventListener("click", (event) => { isKeyboard = !event.detail && !!event.target.closest?.(".node .n"); }, true);
  const start = () => { draw(); if (/step=\d/.test(location.search)) show(); document.querySelector("dialog[data-open]")?.showModal(); };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
