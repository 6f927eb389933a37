/* When an answer is not what was hoped for, the page stays as it is, with all that was typed; a person is told why. */
(() => {
  "use strict";
  const dialog = document.getElementById("dialog");
  const waiting = new Set();  // what signing in was asked for
  let kept = null, held = null;  // the question that stood in the dialog before the trouble, and where its focus was
  const beats = (element) => element?.getAttribute("hx-trigger")?.startsWith("every");
  const asks = () => dialog?.open && dialog.querySelector("[data-trouble]");
  // What was typed into a question stands there again as soon as the trouble is read.
  const back = () => {
    const [question, spot] = [kept, held];
    kept = held = null;
    if (!question) return false;
    dialog.replaceChildren(...question);
    if (!dialog.open) dialog.showModal();
    spot?.focus();
    return true;
  };
  const waits = (element) => {
    const form = element?.closest?.("form");
    if (form) waiting.add(form);
    if (element?.closest?.("[data-autosave]")) window.state(t("Not saved"), true);
  };
  const told = () => document.getElementById("unheard");

  // What only looks from time to time waits until the question is answered, and bears a bad answer by itself.
  document.addEventListener("htmx:config:request", (event) => {
    if (asks() && beats(event.detail.ctx.sourceElement)) event.preventDefault();
  });
  document.addEventListener("htmx:before:swap", (event) => {
    const { ctx } = event.detail, status = ctx.response?.status;
    if (event.defaultPrevented) return;
    if (status >= 429 && beats(ctx.sourceElement)) return event.preventDefault();
    // Who types into the question already is not asked it anew: leaving a field, for the question, sends that field too.
    if (status === 401 && dialog?.querySelector("#again") && ctx.sourceElement?.id !== "again") {
      waits(ctx.sourceElement);
      return event.preventDefault();
    }
    if (ctx.hx?.retarget === "#dialog" && status >= 400 && dialog.open && !asks()) {
      [held, kept] = [document.activeElement, [...dialog.childNodes]];
      dialog.replaceChildren();
    }
    told()?.remove();
  });
  document.addEventListener("htmx:after:swap", (event) => {
    const { ctx } = event.detail, status = ctx.response?.status;
    if (status === 401) waits(ctx.sourceElement);
    else if (status >= 400 && status !== 422 && ctx.sourceElement?.closest?.("[data-autosave]")) window.state(t("Not saved"), true);
    if (dialog?.querySelector("[data-trouble]") && !dialog.open) dialog.showModal();
    if (!dialog?.open || dialog.children.length) return;
    // Signed in again: what saves itself is sent anew, the rest waits for its button.
    if (!back()) dialog.close();
    const asked = [...waiting];
    waiting.clear();
    for (const form of asked) if (form.isConnected && "autosave" in form.dataset) form.dispatchEvent(new Event("change", { bubbles: true }));
  });
  dialog?.addEventListener("close", () => back() || (dialog.querySelector("[data-trouble]") && dialog.replaceChildren()));
  // A script that asks by itself gives us the page's question.
  document.addEventListener("signin", ({ detail: html }) => {
    if (!dialog || dialog.open) return;
    dialog.innerHTML = html;
    htmx.process(dialog);
    dialog.showModal();
  });
  document.addEventListener("htmx:error", (event) => {
    const source = event.detail?.ctx?.sourceElement || event.target;
    if (!(source instanceof Element) || beats(source) || source.closest("[data-autosave]") || told()) return;
    const note = document.createElement("div");
    Object.assign(note, { id: "unheard", className: "banner bad", textContent: t("No response from the server. Nothing was changed, and your input is still here. Try again in a moment.") });
    note.setAttribute("role", "alert");
    (source.closest("form, dialog[open] > *") || document.getElementById("main"))?.prepend(note);
    note.scrollIntoView({ block: "nearest" });
  });
})();
