/* The outline of an email: keys, drawers, and the user's actions in the canvas. */
(() => {
  "use strict";
  const editor = window.editor;
  if (!editor) return;
  const { root, locked, $, byId, select, flush, add, move, acts, tab, pane, saved, say, emit } = editor;

  document.addEventListener("click", async (event) => {
    const link = event.target.closest?.("[data-drawer]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    byId("editor-menu").hidePopover?.();
    await flush();
    const answer = await fetch(link.href, { headers: { "HX-Request": "true", "HX-Target": "dialog#drawer" } });
    const html = await answer.text();
    if (answer.status === 401) return emit("signin", html);
    byId("drawer").innerHTML = html;
    if (!byId("drawer").open) byId("drawer").showModal();
  });
  byId("drawer").addEventListener("submit", () => byId("drawer").close());

  const on = (name, listener) => document.addEventListener("canvas:" + name, ({ detail }) => listener(detail));
  on("select", ({ id }) => { editor.follow(id || ""); pane(matchMedia("(max-width: 860px)").matches ? "right" : root.dataset.pane); });
  on("edit", ({ id }) => editor.enter(id));
  on("move", ({ id, before, into }) => move(id, { before, into }));
  on("act", ({ id, act: name }) => { if (Object.hasOwn(acts, name) && !locked) acts[name](id); });
  // A picture that is chosen or dropped goes into the section's field for it, by the drawer that asks what it shows.
  on("picture", async ({ id, file, before, into }) => {
    if (locked) return;
    if (file === null) { saved(t("Only images can be dropped here.")); say(t("Only images can be dropped here.")); return; }
    id ? await select(id) : await add("image", { before, into });
    const of = (where) => [...root.querySelectorAll(`#inspector ${where}[data-picfield]`)];
    const box = of(".entry ").find((candidate) => !$("input", candidate).value) || of("")[0];
    if (!box) return;
    for (let details = box.closest("details"); details; details = details.parentElement.closest("details")) details.open = true;
    box.dispatchEvent(new CustomEvent("picture", { bubbles: true, detail: file }));
  });
  on("add", ({ kind, before, into, focus }) => { if (kind) add(kind, { before, into }); else { editor.place = { before, into }; tab("palette", focus); pane("left"); } });

  // Words that are typed where no text is press nothing: a letter right behind another is not a shortcut, and a space or Enter
  // behind letters on a tile of the palette adds nothing.
  const WORD_MS = 1000;
  let last = -Infinity, isWord = false, tile = null;
  document.addEventListener("keydown", (event) => {
    const on = event.target.closest?.(".tile-add") || null;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (tile && tile === on && /^( |Enter)$/.test(event.key)) event.preventDefault();
    else if (event.key.length === 1 && event.key !== " ") tile = on;
    if (event.key.length !== 1) return;
    isWord = event.timeStamp - last < WORD_MS;
    last = event.timeStamp;
  }, true);
  document.addEventListener("focusin", () => { tile = null; last = -Infinity; });

  // Keys; in a field they are the browser's own, but for saving, and for undo and redo (undo.js).
  const lines = () => [...root.querySelectorAll("#list [data-select]")];
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented) return;
    const { target, key: pressed, altKey } = event, ctrl = event.ctrlKey || event.metaKey, low = pressed.toLowerCase();
    if (ctrl && low === "s") { event.preventDefault(); flush().then(() => { saved(t("Saved")); say(t("Saved")); }); return; }
    const field = target.closest?.("input:not([type=radio], [type=checkbox], [type=color]), textarea, select, [contenteditable]");
    if (pressed === "Escape" && target.closest?.(".right") && !target.closest("[popover]")) { (byId("o-" + editor.key) || byId("o-")).focus(); return; }
    // Outside of a text there is nothing to select: the browser would mark the whole editor
    if (ctrl && low === "a" && !field) event.preventDefault();
    if (field || target.closest?.("dialog, [popover]")) return;
    const known = () => event.preventDefault(), at = lines().findIndex((line) => line.dataset.select === editor.key), within = target.closest?.("#list, iframe") || target === document.body;
    if (ctrl && low === "d" && editor.key && !locked) { known(); acts.duplicate(editor.key); return; }
    const by = { ArrowUp: -1, ArrowDown: 1 }[pressed];
    if (by && within && altKey && editor.key && !locked) { known(); acts[by < 0 ? "up" : "down"](editor.key); return; }
    if (by && within && !ctrl) { known(); const next = lines()[at + by]; if (next) { next.focus(); select(next.dataset.select); } return; }
    if (ctrl || altKey) return;
    if (pressed === "Delete" && editor.key && within && !locked) { known(); acts.remove(editor.key); return; }
    if (pressed === "Enter" && target.matches("[data-select], iframe")) { known(); target.matches("iframe") ? editor.enter(editor.key) : select(target.dataset.select, true); return; }
    if (document.body.dataset.keys === "off") return;
    if (low === "a" && !event.shiftKey && !isWord && !locked) { known(); tab("palette"); pane("left"); $(".tile-add")?.focus(); }
    const view = { 1: "desktop", 2: "phone", 3: "dark" }[pressed];
    if (view) $(`[data-view=${view}]:is(button)`)?.click();
  });
})();
