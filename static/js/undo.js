/* Undo and redo, by button and by key: one history for typing and arranging, wherever the focus is. */
(() => {
  "use strict";
  const editor = window.editor;
  if (!editor || editor.locked) return;
  const { root, byId, emit, send, settled, flush, busy, act, markSelected, url, say } = editor;

  // The field that somebody writes in, by its name: it is drawn anew, and they go on at its end.
  const findWriting = () => {
    const focused = document.activeElement, form = focused?.closest("form[data-form]"), box = focused?.closest("merge-field");
    const field = box ? box.field : focused;
    return form && field?.matches("input:not([type=radio], [type=checkbox], [type=color]), textarea") && { form: form.dataset.form, name: field.name, field };
  };
  const continueIn = ({ form, name }) => {
    const field = [...root.querySelectorAll(`form[data-form="${form}"]`)].map((candidate) => candidate.elements[name]).find((candidate) => candidate instanceof Element);
    const place = field?.closest("merge-field")?.editor || field;
    place?.focus();
    if (place?.isContentEditable) getSelection().selectAllChildren(place), getSelection().collapseToEnd();
    else if (place?.matches("textarea, input:not([type=email])")) place.setSelectionRange(place.value.length, place.value.length);
  };
  // What could not be kept is in no history: its field shows again what is kept.
  const isRefused = (was) => was && (was.field.matches("[aria-invalid=true]") || was.field.closest(".field")?.querySelector(".slot")?.firstElementChild);

  const run = async (way) => {
    const was = findWriting();
    const failed = (await flush()).some((reply) => reply?.status > 299);
    await settled();
    if (way === "undo" && (failed || isRefused(was))) {
      await send(editor.key ? `${url}/sections/${editor.key}` : `${url}/details`);
      say(t("Undone."));
    } else if (byId(way).disabled) {
      say(way === "undo" ? t("There is nothing to undo.") : t("There is nothing to redo."));
    } else {
      // What is drawn anew stands in the canvas as it is kept
      emit("canvas:post", { typed: null, write: null });
      const reply = await act(`/${way}`, {});
      if (reply.key !== undefined && reply.key !== editor.key) editor.key = reply.key, markSelected();
    }
    if (was) continueIn(was);
  };

  // One step after the other; a text that was written in the canvas is written on after the last one.
  let steps = Promise.resolve(), waiting = 0, written = null;
  editor.step = (way) => {
    waiting += 1;
    editor.waiting += 1;
    busy();
    return steps = steps.catch(() => null).then(() => run(way)).finally(() => {
      const id = written;
      waiting -= 1;
      editor.waiting -= 1;
      busy();
      if (!editor.waiting) emit("settled");
      if (waiting || !id) return;
      written = null;
      if (editor.key === id && byId("o-" + id)) editor.enter(id);
    });
  };
  document.addEventListener("canvas:step", ({ detail: { id, way } }) => { written = id; editor.step(way); });

  // The buttons of the bar, and that of a message, which is gone as soon as it would take back something else.
  document.addEventListener("submit", (event) => {
    const form = event.target, way = form.action.startsWith(new URL(`${url}/`, location)) && /\/(undo|redo)$/.exec(form.action)?.[1];
    if (!way) return;
    event.preventDefault();
    event.stopPropagation();
    form.closest(".toast")?.remove();
    editor.step(way);
  }, true);
  document.addEventListener("keydown", (event) => {
    const { target, key, altKey, shiftKey, ctrlKey, metaKey } = event, low = key.toLowerCase();
    if (event.defaultPrevented || event.isComposing || altKey || !(ctrlKey || metaKey) || !(low === "z" || (low === "y" && !shiftKey))) return;
    const field = target.closest?.("input:not([type=radio], [type=checkbox], [type=color]), textarea, select, [contenteditable]");
    if (target.closest?.("dialog, [popover], .linkrow") || (field && !field.closest("form[data-form]"))) return;
    event.preventDefault();
    editor.step(low === "y" || shiftKey ? "redo" : "undo");
  });
})();
