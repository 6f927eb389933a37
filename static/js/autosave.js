/* Forms that save themselves, also while others edit them: no input is lost, and no old value replaces a newer one. */
(() => {
  "use strict";
  const { state } = window;
  // What saves itself is not lost when the page goes: what is on its way goes on, and the rest is sent along.
  const typed = new Map();
  document.addEventListener("input", ({ target: { form } }) => { if (form?.dataset.autosave !== undefined) typed.set(form, (typed.get(form) || 0) + 1); });
  document.addEventListener("htmx:before:request", ({ target, detail: { ctx: { request } } }) => {
    if (!typed.has(target)) return;
    request.keepalive = String(request.body).length < 50000;  // browsers take no more
    if (request.typed === typed.get(target)) typed.delete(target);
  });
  document.addEventListener("htmx:config:request", ({ target, detail: { ctx: { request } } }) => {
    if (request.method === "POST" && target.closest?.("[data-autosave]")) { state(t("Saving…")); request.typed = typed.get(target); }
  });
  addEventListener("pagehide", () => {
    for (const form of typed.keys()) if (form.isConnected) navigator.sendBeacon(form.action, new URLSearchParams([...new FormData(form), ["mine", "*"]]));
    typed.clear();
  });
  addEventListener("beforeunload", (event) => {
    // The beacon above saves what is on its way; without an answer it would be lost.
    if (document.getElementById("connection") && [...typed.keys()].some((form) => form.isConnected)) event.preventDefault();
  });
  const retry = (element, text) => {
    const form = element?.closest?.("[data-autosave]");
    if (!form) return false;
    state(text, true);
    window.unsaved(true);
    typed.set(form, typed.get(form) || 1);
    setTimeout(() => { if (form.isConnected && typed.has(form)) form.dispatchEvent(new Event("change", { bubbles: true })); }, 2000);
    return true;
  };
  document.addEventListener("htmx:error", (event) => retry(event.target, t("Not saved: no response from the server. Retrying…")));
  document.addEventListener("htmx:before:swap", (event) => {
    const { sourceElement, response } = event.detail.ctx;
    if ([502, 503].includes(response?.status) && retry(sourceElement, t("Not saved: the server is unavailable. Retrying…"))) event.preventDefault();
  });

  // What waited for its turn says what its form has seen by now, and what stands by now where nobody wrote.
  const written = new WeakMap();
  let beat = 0;
  document.addEventListener("input", ({ target }) => written.set(target, ++beat), true);
  const storedValue = (field) => field.closest("merge-field")?.getAttribute("value") ?? field.defaultValue;
  document.addEventListener("htmx:config:request", ({ target: { elements }, detail: { ctx } }) => {
    ctx.beat = beat;
    if (elements?.seen) ctx.left = [...elements].filter((field) => field.name && !/checkbox|radio/.test(field.type) && "defaultValue" in field && field.value === storedValue(field));
  });
  document.addEventListener("htmx:before:request", ({ detail: { ctx: { left = [], request: { body } } } }) => {
    for (const { name, value } of left) if (body?.getAll?.(name).length === 1) body.set(name, value);
  });
  // A field that only has the focus takes what others wrote; one that was written in since it was asked keeps its words.
  const isUntouched = (field, ctx) => field && field === document.activeElement && !(written.get(field) > ctx.beat);
  document.addEventListener("htmx:before:swap", ({ detail: { ctx } }) => {
    const field = document.activeElement;
    ctx.idle = field?.value === field?.defaultValue && isUntouched(field, ctx) ? field : null;
  });
  document.addEventListener("htmx:after:swap", ({ detail: { ctx } }) => {
    if (isUntouched(ctx.idle, ctx) && ctx.idle.value !== ctx.idle.defaultValue) ctx.idle.value = ctx.idle.defaultValue;
  });
})();
