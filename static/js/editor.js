/* The editor of an email: the selection, and saving fields. The server owns the document. */
(() => {
  "use strict";
  const editor = window.editor;
  if (!editor) return;
  const { root, $, byId, emit, saved, url, locked, rev, marks, send, post, busy } = editor;

  // Fields: 300 ms after the last letter (of texts: the first), at once when a choice is made or the field is left.
  const timers = new Map();
  const named = (form, name) => [form.elements[name]].flatMap((element) => element instanceof RadioNodeList ? [...element] : element);
  const value = (form, name) => {
    const all = named(form, name), box = all.find((field) => field.type === "checkbox");
    return box ? (box.checked ? "on" : "") : all[0].type === "radio" ? all.find((field) => field.checked)?.value ?? "" : all.at(-1).value;
  };
  const bodyOf = (form, name) => () => {
    const body = new URLSearchParams([[name, value(form, name)]]), seen = form.elements["seen:" + name];
    if (seen) body.append("seen:" + name, seen.value);
    return body;
  };
  const clear = (field) => { const slot = byId("e" + field.id.slice(1)); if (slot?.firstElementChild && !$(".clash", slot)) { slot.replaceChildren(); marks(); } };
  const save = (form, name) => {
    const id = `${form.action} ${name}`;
    clearTimeout(timers.get(id)?.timer);
    timers.delete(id);
    (form.sent ??= {})[name] = value(form, name);
    return send(form.action, bodyOf(form, name), (reply) => {
      for (const [key, seen] of Object.entries(reply.seen || {})) if (form.elements["seen:" + key]) form.elements["seen:" + key].value = seen;
      if (reply.kept && form.isConnected) { byId("e-" + name.replace(/[._]/g, "-"))?.replaceChildren(); marks(); }
    });
  };
  const saveSoon = (field) => {
    const form = field.form, name = field.name, id = `${form.action} ${name}`;
    if (timers.has(id) && field.closest("merge-field")) return;
    clearTimeout(timers.get(id)?.timer);
    timers.set(id, { form, name, timer: setTimeout(() => { if (editor.waiting && timers.delete(id)) saveSoon(field); else save(form, name); }, 300) });
    busy();
  };
  const saveAll = () => Promise.all([...timers.values()].map(({ form, name }) => save(form, name)));
  // What was already written in the canvas for a section whose fields are still on their way is typed too.
  let chosen = Promise.resolve();
  const flush = async () => { if (editor.ahead?.()) await chosen; return saveAll(); };
  const afterWriting = (run) => (editor.ahead?.() ? chosen.then(() => { saveAll(); return run(); }) : (saveAll(), run()));
  const isSaved = (field) => !locked && field.form?.dataset.form && field.name && !field.name.startsWith("seen:");
  root.addEventListener("input", ({ target }) => {
    if (target.dataset.own) return addColour(target);
    for (const count of root.querySelectorAll("[data-count]")) if (count.dataset.count === target.id && !/\{[{%]/.test(target.value)) count.textContent = [...target.value].length;
    if (isSaved(target)) { clear(target); saveSoon(target); }
  });
  root.addEventListener("change", ({ target }) => { if (isSaved(target) && !target.dataset.own && target.form.sent?.[target.name] !== value(target.form, target.name)) save(target.form, target.name); });
  root.addEventListener("focusout", ({ target }) => { if (target.form && timers.has(`${target.form.action} ${target.name}`)) save(target.form, target.name); });
  // A colour of one's own becomes one more choice.
  const addColour = (well) => {
    const select = byId(well.dataset.own);
    let option = $("[data-mine]", select);
    if (!option) { option = new Option(); option.dataset.mine = ""; select.append(option); }
    option.value = option.textContent = well.value;
    option.selected = true;
    saveSoon(select);
  };

  // Selecting
  const markSelected = () => {
    root.dataset.key = editor.key;
    for (const link of root.querySelectorAll("[data-select]")) link.closest("#list") && (link.dataset.select === editor.key ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current"));
    $("#adding [name=behind]") && ($("#adding [name=behind]").value = editor.key);
    history.replaceState(null, "", root.dataset.page + (editor.key ? `?s=${editor.key}` : ""));
    emit("canvas:show", { id: editor.key || null });
  };
  // Where something typed could not be kept, one stays with it; whoever goes on then leaves it as it was.
  const select = (next, focus) => { const before = chosen; return chosen = choose(next, focus, before); };
  const choose = async (next, focus, before) => {
    if (editor.ahead?.()) await before;
    if ((await saveAll()).some((reply) => reply?.status > 299)) return;
    editor.key = next || "";
    markSelected();
    return send(editor.key ? `${url}/sections/${editor.key}` : `${url}/details`, null, () => { if (focus) pane("right"), [...root.querySelectorAll("#inspector form.form :is(input, textarea, select, [contenteditable])")].find((field) => field.offsetParent)?.focus(); });
  };
  const pane = (name) => {
    root.dataset.pane = name;
    for (const button of root.querySelectorAll(".tabbar [data-pane-to]")) button.dataset.paneTo === name ? button.setAttribute("aria-current", "true") : button.removeAttribute("aria-current");
  };
  const tab = (name, focus) => {
    if (!byId("tab-" + name)) return;
    $("#left").dataset.tab = name;
    for (const button of root.querySelectorAll("[role=tab]")) {
      const on = button.id === "tab-" + name;
      button.setAttribute("aria-selected", on);
      button.tabIndex = on ? 0 : -1;
      if (on && focus) button.focus();
    }
    if (name === "outline") byId("o-" + editor.key)?.scrollIntoView({ block: "nearest" });
  };

  // Acts: forms marked data-act, whoever sends them.
  const act = (path, values, after) => afterWriting(() => send(`${url}${path}`, () => new URLSearchParams({ revision: rev(), s: editor.key, ...values }), after));
  const placeFields = (spot) => Object.fromEntries(Object.entries({ before: spot.before, behind: spot.behind, parent: spot.into?.id, column: spot.into?.column }).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  // The rail stays where it is, so that several are added in a row; a phone shows the fields of what was added.
  const added = () => { pane("right"); byId("o-" + editor.key)?.scrollIntoView({ block: "nearest" }); };
  const add = (kind, spot) => act("/sections", { kind, ...placeFields(spot) }, added);
  const move = (id, spot) => act(`/sections/${id}/move`, placeFields(spot));
  const acts = {
    up: (id) => act(`/sections/${id}/move`, { way: "up" }), down: (id) => act(`/sections/${id}/move`, { way: "down" }),
    duplicate: (id) => act(`/sections/${id}/duplicate`, {}), remove: (id) => act(`/sections/${id}/remove`, {}, () => byId("o-" + editor.key)?.focus()),
  };
  // The entry of a list that was added or moved is the one that is looked at.
  const opened = ([, what, at]) => {
    const all = [...root.querySelectorAll("#inspector details.entry")], entry = all.at(what === "add" ? -1 : Math.max(0, Math.min(all.length - 1, +at + ({ up: -1, down: 1 }[what] || 0))));
    if (!entry) return;
    entry.open = true;
    (what === "add" ? [...entry.querySelectorAll("input, textarea, [contenteditable]")].find((field) => field.offsetParent) : $(`[value*=".${what}."]:enabled`, entry) || $("summary", entry))?.focus();
  };
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.form) { event.preventDefault(); flush(); return; }
    if (form.dataset.act === undefined && !(form.closest(".toast") && form.action.includes(`${url}/`))) return;
    event.preventDefault();
    const data = new FormData(form, event.submitter);
    if (form.id === "adding" && editor.place) { data.delete("behind"); for (const [name, text] of Object.entries(placeFields(editor.place))) data.append(name, text); editor.place = null; }
    if (data.has("revision")) data.set("revision", rev());
    data.append("s", editor.key);
    afterWriting(() => send(form.action, () => new URLSearchParams(data), (reply) => {
      form.closest(".toast")?.remove();
      if (form.id === "items") opened(event.submitter.value.split("."));
      if (form.id === "adding" && reply.changed) added();
      if (form.id === "test-form" && reply.status === 200) byId("send-test").close(), saved(t("Test email sent"));
      if (form.dataset.act === "theme" && reply.kept) emit("theme");
    }));
  });
  root.addEventListener("click", (event) => {
    const link = event.target.closest("[data-select], [data-pane-to], [role=tab], [data-add-to], [data-clear]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const { select: next, paneTo, addTo, column, clear: path } = link.dataset;
    if (next !== undefined) { event.preventDefault(); select(next); pane("right"); }
    else if (paneTo) { event.preventDefault(); pane(paneTo); }
    else if (addTo) { editor.place = { into: { id: addTo, column } }; tab("palette", true); pane("left"); }
    else if (path) act(`/sections/${editor.key}`, { [path]: "" }, () => { select(editor.key); });
    else tab(link.id.slice(4));
  });
  root.addEventListener("keydown", (event) => {
    const tabs = [...root.querySelectorAll("[role=tab]")], at = tabs.indexOf(event.target), by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (at >= 0 && by) tab(tabs[(at + by + tabs.length) % tabs.length].id.slice(4), true);
  });

  // Who else is here, and what they changed: every 20 seconds while somebody looks.
  const beat = () => new URLSearchParams({ revision: rev(), s: editor.key, crowd: $("#list .present") ? "yes" : "" });
  if (!locked) {
    setInterval(() => { if (!document.hidden && !editor.waiting) send(`${url}/presence`, beat, null, true); }, 20000);
    setTimeout(() => send(`${url}/presence`, beat, null, true), 400);
  }
  addEventListener("pagehide", () => {
    for (const { form, name } of timers.values()) post(form.action, bodyOf(form, name)());
    if (!locked) navigator.sendBeacon(`${url}/presence`, new URLSearchParams({ gone: "1" }));
  });
  addEventListener("beforeunload", (event) => { if (editor.waiting && byId("saved")?.dataset.failed !== undefined) event.preventDefault(); });

  for (const dialog of document.querySelectorAll("dialog[data-open]")) dialog.showModal();
  if (editor.key) emit("canvas:show", { id: editor.key });
  // Whoever comes from a checklist is where its finding is fixed. Rich text and merge fields replace the field they begin as.
  const fix = root.dataset.focus && byId(root.dataset.focus);
  if (fix) setTimeout(() => {
    const field = fix.offsetParent ? fix : $("[contenteditable], input:not([type=hidden]), textarea, select", fix.closest(".field"));
    fix.closest("details")?.setAttribute("open", "");
    field?.focus({ preventScroll: true });
    field?.scrollIntoView({ block: "nearest" });
  });
  const handleRemoved = async () => {
    await select("");
    send(`${url}/presence`, beat, () => {
      const note = Object.assign(document.createElement("div"), { className: "banner", textContent: t("Another user removed this section. You can restore it from the history.") });
      byId("messages")?.replaceChildren(note);
    }, true);
  };
  Object.assign(editor, { save, timers, select, markSelected, flush, act, add, move, acts, tab, pane, handleRemoved, typing: () => timers.size, chosen: () => chosen });
})();
