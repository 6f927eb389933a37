/* Requests of the editor, sent one after the other, and the parts of the page that they return. */
(() => {
  "use strict";
  const root = document.getElementById("editor");
  if (!root) return;
  const $ = (selector, within = document) => within.querySelector(selector);
  const byId = (id) => document.getElementById(id);
  const emit = (name, detail = {}) => document.dispatchEvent(new CustomEvent(name, { detail }));
  const saved = (text, hasFailed = false) => {
    const mark = byId("saved");
    if (!mark) return;
    mark.textContent = text;
    mark.toggleAttribute("data-failed", hasFailed);
  };
  const say = (text) => { byId("say").textContent = ""; setTimeout(() => { byId("say").textContent = text; }, 60); };
  const editor = window.editor = { root, $, byId, emit, saved, say, url: root.dataset.editor, locked: "locked" in root.dataset, key: root.dataset.key, place: null, waiting: 0 };
  const rev = editor.rev = () => root.dataset.rev;

  // Pieces of the page take the place of the elements of their ids; what has the focus keeps it, by its id too.
  const apply = (html) => {
    const focused = document.activeElement, id = focused?.id, template = document.createElement("template");
    template.innerHTML = html;
    $(".toast", template.content) && $(".toast")?.remove();
    for (const piece of [...template.content.children]) {
      const old = piece.id && byId(piece.id);
      if (piece.matches(".toast")) document.body.append(piece);
      else if (old) old.replaceWith(piece);
      if (old || piece.matches(".toast")) htmx.process(piece);
    }
    if (!focused?.isConnected && id) byId(id)?.focus({ preventScroll: true });
    if (template.content.querySelector || $(".toast")) document.dispatchEvent(new CustomEvent("htmx:after:swap", { detail: { ctx: { target: document.body } } }));
    marks();
  };
  // A mistake is told to those who do not see it.
  const marks = () => {
    for (const slot of root.querySelectorAll(".slot")) {
      const field = byId("f" + slot.id.slice(1));
      if (!field) continue;
      slot.firstElementChild ? field.setAttribute("aria-invalid", "true") : field.removeAttribute("aria-invalid");
    }
  };

  // One question after the other, each until it is answered.
  let chain = Promise.resolve();
  // What is on its way stays so when the page goes: up to 64 KB.
  const post = (path, body) => fetch(path, {
    method: body ? "POST" : "GET", body, headers: { "HX-Request": "true", "X-Canvas": byId("stage").dataset.have || "" }, keepalive: !!body && String(body).length < 50000,
  });
  // The email is what somebody looks at: it is painted before the lists and fields around it are made anew.
  const waitForPaint = () => Promise.race([pause(50), new Promise((done) => requestAnimationFrame(() => setTimeout(done)))]);
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const ask = async (path, body) => {
    for (let wait = 1000; ; wait = Math.min(wait * 2, 15000)) {
      let text = t("Not saved: you are offline. Retrying…");
      try {
        const answer = await post(path, body?.());
        if (answer.status === 401) emit("signin", await answer.text()), text = t("Not saved: you are signed out. Retrying…"), wait = 500;
        else if (answer.status !== 503 && answer.status !== 502) { window.unsaved(false); return answer; }
        if (answer.status !== 401 && body) window.unsaved(true);
      } catch { if (body) window.unsaved(true); }
      saved(text, true);
      await pause(wait);
    }
  };
  const readReply = async (answer) => {
    const where = answer.headers.get("HX-Redirect");
    if (where) { location.assign(where); return {}; }
    const reply = JSON.parse(answer.headers.get("X-Editor") || "{}"), html = await answer.text();
    if (!answer.headers.has("X-Editor")) {
      const texts = { 403: t("Your role does not allow this."), 404: t("Removed by another user"), 413: t("Not saved: too large") };
      saved(texts[answer.status] || t("Not saved: server error"), ![403, 404].includes(answer.status));
      if (answer.status === 404 && editor.key) editor.handleRemoved();
      return { failed: true };
    }
    if (reply.rev) root.dataset.rev = reply.rev;
    for (const field of document.querySelectorAll(reply.kept || reply.select ? "[name=revision]" : "[name=revision]:not([data-revision])")) field.value = rev();
    // A message that offers to take an older step back would take back this one
    if (reply.kept || reply.changed) $(".toast form[action$='/undo']")?.closest(".toast").remove();
    if (reply.select !== undefined) editor.key = reply.select || "";
    emit("answer", { html });
    if (html.includes('<data id="drawn"')) await waitForPaint();
    apply(html);
    if (reply.say) say(reply.say);
    if (reply.base) saved(reply.base);
    return { ...reply, status: answer.status };
  };
  const queue = new Set();
  const busy = () => root.toggleAttribute("data-busy", !!editor.waiting || !!editor.typing?.());
  const send = (path, body, after, quiet) => {
    const request = { path, body };
    queue.add(request);
    editor.waiting += 1;
    busy();
    return chain = chain.then(async () => {
      queue.delete(request);
      if (body && !quiet) saved(t("Saving…"));
      const reply = await readReply(await ask(path, body));
      editor.waiting -= 1;
      if (reply.status === 422) saved(t("Not saved yet"), true);
      if (reply.status === 409) saved(t("Changed by another user"));
      await after?.(reply);
      if (reply.kept) emit("section", { id: editor.key, rev: reply.rev });
      if (reply.changed) { emit("sections", { rev: reply.rev }); if (reply.select !== undefined) editor.markSelected(); }
      busy();
      if (!editor.waiting) emit("settled");
      return reply;
    });
  };
  addEventListener("pagehide", () => { for (const { path, body } of queue) if (body) post(path, body()); });
  Object.assign(editor, { marks, send, post, busy, settled: () => chain });
})();
