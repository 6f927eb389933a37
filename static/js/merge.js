/* Merge tags as chips, their menu and their fallbacks. */
(() => {
  "use strict";
  const TAG = /^\{\{\s*([^{}|]+?(?: \| date)?)\s*(?:\|\s*default:\s*(?:"([^"{}]*)"|'([^'{}]*)'))?\s*\}\}$/;
  const $ = (selector, root = document) => root.querySelector(selector);
  const merge = (window.merge = { gap: "\u200b" });
  const on = (name, handler) => document.addEventListener(name, handler);
  let menu, box, loading, at;

  const parse = (tag) => {
    const [, name = tag.slice(2, -2).trim(), double, single] = TAG.exec(tag) || [], escaped = CSS.escape(name);
    return { name, known: menu && $(`[data-name="${escaped}"], [data-also="${escaped}"]`, menu), fallback: double ?? single ?? "" };
  };
  const write = (name, words) => (words ? `{{ ${name} | default: "${words.replace(/["{}]/g, "")}" }}` : `{{ ${name} }}`);
  const paint = (chip) => {
    const { tag } = chip.dataset, { name, known, fallback } = parse(tag), last = name.replace(" | date", "").split(".").at(-1).replaceAll("_", " ");
    const strange = menu && TAG.test(tag) && !menu.dataset.roots.split(" ").includes(name.split(/[.[]/)[0]);
    const weak = known?.dataset.without && !fallback;
    chip.className = `merge${strange ? " bad" : weak ? " warn" : ""}`;
    chip.title = strange ? t("This merge tag is unknown and will be blank.") : weak ? t("%(share)s. Add a fallback.", { share: known.dataset.without }) : tag;
    chip.textContent = (known?.dataset.label || last[0].toUpperCase() + last.slice(1)) + (fallback && ` ▸ ${fallback}`);
  };
  const chipOf = (merge.chip = (tag) => {
    const chip = Object.assign(document.createElement("span"), { contentEditable: "false" });
    chip.dataset.tag = tag;
    paint(chip);
    return chip;
  });
  // A caret needs text to stand in on both sides of a chip.
  merge.chipped = (text) => text.split(/(\{\{[^{}]*\}\})/).map((part, at) => (at % 2 ? chipOf(part) : document.createTextNode(part || (text && merge.gap))));
  merge.plain = (root) => {
    const copy = root.cloneNode(true);
    for (const chip of copy.querySelectorAll("[data-tag]")) chip.replaceWith(chip.dataset.tag);
    return copy;
  };

  merge.load = (t) => (loading ??= (async () => {
    const answer = await fetch(`/templates/merge?t=${t || ""}`, { headers: { "HX-Request": "true" } });
    if (!answer.ok) throw answer; // asked again with the next use
    document.body.append(...new DOMParser().parseFromString(await answer.text(), "text/html").body.children);
    [menu, box] = [$("#merge-menu"), $("#merge-chip")];
    document.querySelectorAll("merge-field [data-tag]").forEach(paint);
    document.querySelectorAll("merge-field").forEach((field) => field.warn());
  })().catch((why) => { loading = null; return why; }));
  merge.pick = async (field, anchor, cut) => {
    const why = await merge.load(field.dataset.t);
    if (why?.status === 401) return document.dispatchEvent(new CustomEvent("signin", { detail: await why.text() }));
    at = { field, cut };
    const input = menu && $("input", menu);
    if (!input) return;
    find((input.value = ""));
    rich.beside(menu, anchor);
    input.focus();
  };
  merge.picksFor = (field) => at?.field === field && [menu, box].some((popover) => popover?.matches(":popover-open"));
  merge.edit = (field, chip) => {
    const { known, fallback } = parse(chip.dataset.tag);
    if (!box || !TAG.test(chip.dataset.tag)) return;
    at = { field, chip };
    const [name, words, input] = ["h3", "[data-without]", "input"].map((selector) => $(selector, box));
    name.textContent = chip.textContent.split(" ▸ ")[0];
    words.textContent = known?.dataset.without || "";
    input.value = fallback;
    rich.beside(box, chip);
    input.focus();
  };

  const find = (words) => {
    for (const item of menu.querySelectorAll("[data-tag]")) item.hidden = !item.textContent.toLowerCase().includes(words);
    for (const group of menu.querySelectorAll("[role=group]")) group.hidden = !$("[data-tag]:not([hidden])", group);
    $("[data-none]", menu).hidden = !!$("[data-tag]:not([hidden])", menu);
  };
  const take = (tag, words) => {
    menu.hidePopover();
    at.field.put(chipOf(tag), at.cut, words);
    at.field.changed();
  };
  on("input", ({ target: { id, value } }) => {
    if (id === "merge-search" && value.endsWith("}}")) take(`{{ ${value.slice(0, -2).trim()} }}`);
    else if (id === "merge-search") find(value.trim().toLowerCase());
    if (id !== "merge-fallback") return;
    at.chip.dataset.tag = write(parse(at.chip.dataset.tag).name, value);
    paint(at.chip);
    at.field.changed();
  });
  on("keydown", (event) => {
    const { key, target: { id } } = event;
    const next = key === "Enter" && $({ "merge-search": "#merge-menu [data-tag]:not([hidden])", "merge-fallback": "[data-done]" }[id] || "_");
    if (next) { event.preventDefault(); next.click(); }
  });
  on("click", ({ target }) => {
    const button = target.closest?.("#merge-menu [data-tag], #merge-chip button");
    if (!button) return;
    const { tag, text, fallback, name, remove } = button.dataset;
    if (tag) return take(write(name, fallback), text);
    const { field, chip } = at;
    box.hidePopover();
    field.editor.focus();
    // One goes on behind the tag, or where it was
    if (chip.nextSibling?.nodeType !== 3) chip.after(merge.gap);
    const after = chip.nextSibling;
    getSelection().collapse(after, after.data.startsWith(merge.gap) ? 1 : 0);
    if (remove !== undefined) chip.remove();
    field.keep();
    field.changed();
  });
})();
