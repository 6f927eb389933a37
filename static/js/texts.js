/* Texts typed in the editor: shown in the canvas before they are saved, edited in place, and compared with others' changes. */
(() => {
  "use strict";
  const editor = window.editor;
  if (!editor) return;
  const { root, $, byId, emit, saved, locked, marks, save, select, flush, timers } = editor, { merge, rich } = window;

  // The words of a value as the canvas shows them, one for each of its texts.
  const texts = (field, value) => {
    if (field.closest("merge-field").mode !== "rich") return [value.trim()];
    const box = document.createElement("div");
    box.append(...rich.nodesOf(value));
    for (const chip of box.querySelectorAll("[data-tag]")) chip.replaceWith(chip.dataset.tag);
    box.normalize();
    const words = [], walk = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) if (node.data.replaceAll(merge.gap, "").trim()) words.push(node.data.replaceAll(merge.gap, "").trim());
    return words;
  };
  const show = (typed) => emit("canvas:post", { typed });
  // A merge tag is somebody's words there, and a text more or less is laid out by the server: those wait for it.
  const follow = (field) => {
    const now = texts(field, field.value), known = (field.texts ??= texts(field, field.defaultValue).map((text) => [text]));
    const at = now.length === known.length ? now.findIndex((text, at) => text !== known[at].at(-1)) : -1;
    if (now.length !== known.length) field.texts = now.map((text) => [text]), show(null);
    if (at < 0) return;
    const was = known[at].filter((text) => text).slice(-40);
    known[at].push(now[at]);
    show(/\{[{%]/.test(now[at]) ? null : { id: editor.key, name: `${field.name} ${at}`, was: [...was, now[at]], now: now[at] });
  };
  root.addEventListener("input", ({ target }) => {
    if (target.form?.dataset.form !== "section" || !target.name?.startsWith("props.")) return;
    if (!/(alt|name)$/.test(target.name) && target.closest("merge-field")) follow(target);
    const box = boxOf(editor.key);
    if (box?.contains(target)) emit("canvas:post", { text: { id: editor.key, ...textOf(box) } });
  });
  document.addEventListener("sections", () => show(null));

  // A heading, a text, a button is written where it stands; the field beside it keeps what is written.
  const KINDS = { heading: "props.text", button: "props.text", text: "props.content" };
  const boxOf = (id) => {
    const kind = id === editor.key && byId("o-" + id)?.closest("li")?.dataset.kind, form = $("#inspector form[data-form=section]");
    return (form?.dataset.key === id && form.elements[KINDS[kind]]?.closest("merge-field")) || null;
  };
  // The frame knows the texts as they are written before anybody clicks into one: the caret is there with the first click.
  const textOf = (box) => ({ rich: box.mode === "rich", html: box.editor.innerHTML });
  const built = new Map();
  const textIn = ({ dataset: { key, kind, text } }) => {
    const known = built.get(key);
    if (known?.source === text) return known.text;
    const holder = document.createElement("div"), isRich = kind === "text";
    holder.append(...(isRich ? rich.nodesOf(text) : merge.chipped(text)));
    built.set(key, { source: text, text: { rich: isRich, html: holder.innerHTML } });
    return built.get(key).text;
  };
  const postTexts = () => {
    // While something is on its way the outline is older than what was written; this is called again afterwards
    if (editor.waiting || timers.size) return;
    const lines = locked ? [] : [...root.querySelectorAll("#list li[data-text]")], box = boxOf(editor.key);
    const texts = Object.fromEntries(lines.map((line) => [line.dataset.key, textIn(line)]));
    if (box && !locked) texts[editor.key] = textOf(box);
    emit("canvas:post", { texts });
  };
  for (const name of ["canvas:ready", "settled"]) document.addEventListener(name, postTexts);
  editor.enter = async (id) => {
    if (!await select(id)) return emit("canvas:post", { write: null });
    const box = boxOf(id);
    const isPicture = byId("o-" + id)?.closest("li")?.dataset.kind === "image";
    if (isPicture && !locked && !$("#inspector [data-picfield] input").value) return emit("canvas:picture", { id });
    if (!box || locked) return select(id, true);
    emit("canvas:post", { write: { id, ...textOf(box) } });
  };
  const on = (name, listener) => document.addEventListener("canvas:" + name, ({ detail }) => listener(detail));
  on("unwritable", ({ id }) => select(id, true));
  // What is written before the fields of its section came waits for them.
  const ahead = new Map();
  const fillAhead = () => {
    const text = ahead.get(editor.key), box = text !== undefined && !locked && boxOf(editor.key);
    if (!box) return;
    ahead.delete(editor.key);
    box.editor.replaceChildren(...(box.mode === "rich" ? rich.nodesOf(text) : merge.chipped(text)));
    box.changed();
  };
  editor.ahead = () => ahead.size;
  editor.follow = async (id) => {
    if (id === editor.key || await select(id)) return;
    ahead.clear();
    emit("canvas:post", { write: null });
  };
  document.addEventListener("htmx:after:swap", fillAhead);
  on("wrote", ({ id, text }) => { ahead.set(id, text); fillAhead(); });
  on("left", async ({ id, changed }) => {
    if (ahead.has(id)) await editor.chosen();
    boxOf(id)?.done();
    await flush();
    if (changed) emit("section", { id });
  });

  // Two wrote the same: ours is kept after all, or theirs takes the place of that one field.
  const takeTheirs = async (form, path, slot) => {
    const answer = await fetch(root.dataset.page + (editor.key ? `?s=${editor.key}` : "")), page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const field = page.getElementById(slot.id)?.parentElement;
    if (!field) return select(editor.key, true);
    const id = `${form.action} ${path}`;
    clearTimeout(timers.get(id)?.timer);
    timers.delete(id);
    delete form.sent?.[path];
    slot.parentElement.replaceWith(field);
    marks();
    saved(t("Saved"));
    byId("f" + slot.id.slice(1))?.focus();
    emit("sections");
  };
  root.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-clash]"), box = button?.closest(".clash");
    if (!box) return;
    const form = box.closest("form"), { path, seen } = box.dataset;
    if (button.dataset.clash === "theirs") return takeTheirs(form, path, box.closest(".slot"));
    form.elements["seen:" + path].value = seen;
    save(form, path);
  });
})();
