/* Selects with many options: a button opens a list that can be searched. */
(() => {
  "use strict";
  // One finder for all long choices: a field to type in, and the options that contain all of its words.
  const finder = Object.assign(document.createElement("div"), { id: "finder", className: "menu", popover: "auto" });
  const field = Object.assign(document.createElement("input"), { className: "input", type: "text", autocomplete: "off", placeholder: t("Search") });
  const list = Object.assign(document.createElement("div"), { id: "finder-list", role: "listbox" });
  for (const [name, value] of [["role", "combobox"], ["aria-expanded", "true"], ["aria-controls", "finder-list"], ["aria-label", t("Search options")], ["spellcheck", "false"]]) field.setAttribute(name, value);
  list.setAttribute("aria-label", t("Options"));
  finder.append(field, list);
  document.body.append(finder);
  let select = null, button = null, current = 0;
  const options = () => [...list.querySelectorAll("[role=option]")];
  const mark = (at) => {
    const all = options();
    current = Math.max(0, Math.min(at, all.length - 1));
    all.forEach((option, index) => option.setAttribute("aria-selected", String(index === current)));
    field.setAttribute("aria-activedescendant", all[current]?.id || "");
    all[current]?.scrollIntoView({ block: "nearest" });
  };
  // Case and accents do not matter, nor how a name of several words is joined: zurich finds Zürich, los angeles Los_Angeles.
  const fold = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").replaceAll("_", " ").toLowerCase();
  // The whole name comes before its beginning, and that before any other match: "list" is List, not the suppression list.
  const best = (typed) => {
    const names = options().map((option) => fold(option.textContent));
    return Math.max(0, [names.indexOf(typed), names.findIndex((name) => name.startsWith(typed))].find((at) => at >= 0) ?? 0);
  };
  const fill = () => {
    const words = fold(field.value).split(/\s+/).filter(Boolean);
    let group = null;
    list.replaceChildren();
    for (const option of select.options) {
      const under = option.parentElement.label || "";
      const more = option.dataset.words ?? option.value.replace(/^[^.]*\.?/, "");
      if (!option.value && option.dataset.words === undefined) continue;
      if (words.length && !words.every((word) => fold(`${option.text} ${under} ${more}`).includes(word))) continue;
      if (under !== group && under) list.append(Object.assign(document.createElement("div"), { className: "group", textContent: under, role: "presentation" }));
      group = under;
      const item = Object.assign(document.createElement("div"), { id: `finder-${option.index}`, role: "option", textContent: option.text });
      item.dataset.value = option.value;
      list.append(item);
    }
    if (!list.children.length) list.append(Object.assign(document.createElement("div"), { className: "group", textContent: t("No matches"), role: "presentation" }));
    mark(words.length ? best(fold(field.value).trim()) : options().findIndex((option) => option.dataset.value === select.value));
  };
  const choose = (option) => {
    finder.hidePopover();
    if (!option) return;
    select.value = option.dataset.value;
    button.focus();
    for (const name of ["input", "change"]) select.dispatchEvent(new Event(name, { bubbles: true }));
  };
  // The button says what is chosen, by whomever.
  document.addEventListener("change", ({ target }) => {
    const shown = target.matches("select[data-find]") && document.querySelector(`button[data-for="${target.id}"]`);
    if (!shown) return;
    const { text } = target.selectedOptions[0];
    shown.firstElementChild.textContent = text;
    shown.setAttribute("aria-label", `${shown.dataset.label}: ${text}`);
    shown.classList.toggle("none", !target.value);
  });
  document.addEventListener("click", ({ target }) => {
    const control = target.closest?.("label")?.control;
    if (control?.matches("select[data-find]")) document.getElementById(`${control.id}-find`)?.focus();
    const opener = target.closest?.("button[data-for]");
    if (!opener) return;
    button = opener;
    select = document.getElementById(opener.dataset.for);
    field.value = "";
    finder.showPopover();
    const at = opener.getBoundingClientRect(), below = innerHeight - at.bottom > 350 || at.top < 350;
    Object.assign(finder.style, { inset: "auto", margin: 0, minWidth: `${Math.min(at.width, innerWidth - 16)}px`, left: `${Math.max(8, Math.min(at.left, innerWidth - Math.max(at.width, 300)))}px`, top: below ? `${at.bottom + 4}px` : "auto", bottom: below ? "auto" : `${innerHeight - at.top + 4}px` });
    fill();
    field.focus();
  });
  field.addEventListener("input", (event) => { event.stopPropagation(); fill(); });
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (step) { event.preventDefault(); mark(current + step); }
    if (event.key === "Enter") { event.preventDefault(); choose(options()[current]); }
    if (event.key === "Tab") choose(options()[current]);
    if (event.key === "Escape") button.focus();
  });
  list.addEventListener("click", ({ target }) => choose(target.closest("[role=option]")));
})();
