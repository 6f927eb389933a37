/* Failed requests: the page keeps all input and says what went wrong. */
(() => {
  "use strict";
  const dialog = document.getElementById("dialog");
  const waiting = new Set();  // what signing in was asked for
  let kept = null, held = null;  // the question that stood in the dialog before the trouble, and where its focus was
  const isPolling = (element) => element?.getAttribute("hx-trigger")?.startsWith("every");
  const findTrouble = () => dialog?.open && dialog.querySelector("[data-trouble]");
  // What was typed into a question stands there again as soon as the trouble is read.
  const restoreQuestion = () => {
    const [question, spot] = [kept, held];
    kept = held = null;
    if (!question) return false;
    dialog.replaceChildren(...question);
    if (!dialog.open) dialog.showModal();
    spot?.focus();
    return true;
  };
  const rememberForm = (element) => {
    const form = element?.closest?.("form");
    if (form) waiting.add(form);
    if (element?.closest?.("[data-autosave]")) window.state(t("Not saved"), true);
  };
  const shownNote = () => document.getElementById("unheard");

  // One banner for the whole page says that nothing is saved, and goes when it is.
  let failing = false;
  const banner = () => {
    let bar = document.getElementById("connection");
    const text = !navigator.onLine ? t("You are offline. Your changes are not saved until you are connected again. What you typed stays on this page.")
      : failing ? t("Not saved: the server does not respond. Your changes are saved as soon as it does.") : "";
    if (!text) return bar?.remove();
    if (!bar) {
      bar = Object.assign(document.createElement("div"), { id: "connection", className: "banner bad" });
      bar.setAttribute("role", "status");
      document.getElementById("main")?.prepend(bar);
    }
    if (bar.textContent !== text) bar.textContent = text;
  };
  // What saves itself says whether it got through.
  window.unsaved = (yes) => { failing = yes; banner(); };
  for (const name of ["online", "offline"]) addEventListener(name, banner);
  banner();
  const isServerUp = () => fetch("/healthz", { method: "HEAD", cache: "no-store" }).then((answer) => answer.ok, () => false);
  // What was sent by hand is sent again by hand: the note says when that helps.
  const watch = async (note) => {
    while (note.isConnected && !(await isServerUp())) await new Promise((done) => setTimeout(done, 3000));
    if (!note.isConnected) return;
    note.classList.remove("bad");
    note.textContent = t("The connection is back. Your input is still here, but not saved yet: try again.");
  };
  const showNoResponse = (source) => {
    if (shownNote()) return;
    const note = document.createElement("div");
    Object.assign(note, { id: "unheard", className: "banner bad", textContent: t("No response from the server. Nothing was changed, and your input is still here. Try again in a moment.") });
    note.setAttribute("role", "alert");
    (source.closest("form, dialog[open] > *") || document.getElementById("main"))?.prepend(note);
    note.scrollIntoView({ block: "nearest" });
    watch(note);
  };
  // A form without htmx leaves the page: without a connection it would lead to an error page of the browser, and what
  // was typed would be lost.
  const checked = new WeakSet();
  document.addEventListener("submit", async (event) => {
    const { target: form, submitter } = event;
    if (event.defaultPrevented || form.method !== "post" || checked.delete(form)) return;
    if (navigator.onLine && form.dataset.guard === undefined) return;
    event.preventDefault();
    if (!(await isServerUp())) { window.guard(form); return showNoResponse(form); }
    checked.add(form);
    form.requestSubmit(submitter);
  });

  // What only looks from time to time waits until the question is answered, and bears a bad answer by itself.
  document.addEventListener("htmx:config:request", (event) => {
    if (findTrouble() && isPolling(event.detail.ctx.sourceElement)) event.preventDefault();
  });
  document.addEventListener("htmx:before:swap", (event) => {
    const { ctx } = event.detail, status = ctx.response?.status;
    if (event.defaultPrevented) return;
    if (status >= 429 && isPolling(ctx.sourceElement)) return event.preventDefault();
    // Who types into the question already is not asked it anew: leaving a field, for the question, sends that field too.
    if (status === 401 && dialog?.querySelector("#again") && ctx.sourceElement?.id !== "again") {
      rememberForm(ctx.sourceElement);
      return event.preventDefault();
    }
    if (ctx.hx?.retarget === "#dialog" && status >= 400 && dialog.open && !findTrouble()) {
      [held, kept] = [document.activeElement, [...dialog.childNodes]];
      dialog.replaceChildren();
    }
    shownNote()?.remove();
  });
  document.addEventListener("htmx:after:swap", (event) => {
    const { ctx } = event.detail, status = ctx.response?.status;
    if (status < 500 && ctx.sourceElement?.closest?.("[data-autosave]")) window.unsaved(false);
    if (status === 401) rememberForm(ctx.sourceElement);
    else if (status >= 400 && status !== 422 && ctx.sourceElement?.closest?.("[data-autosave]")) window.state(t("Not saved"), true);
    if (dialog?.querySelector("[data-trouble]") && !dialog.open) dialog.showModal();
    if (!dialog?.open || dialog.children.length) return;
    // Signed in again: what saves itself is sent anew, the rest waits for its button.
    if (!restoreQuestion()) dialog.close();
    const forms = [...waiting];
    waiting.clear();
    for (const form of forms) if (form.isConnected && "autosave" in form.dataset) form.dispatchEvent(new Event("change", { bubbles: true }));
  });
  dialog?.addEventListener("close", () => restoreQuestion() || (dialog.querySelector("[data-trouble]") && dialog.replaceChildren()));
  // A script that asks by itself gives us the page's question.
  document.addEventListener("signin", ({ detail: html }) => {
    if (!dialog || dialog.open) return;
    dialog.innerHTML = html;
    htmx.process(dialog);
    dialog.showModal();
  });
  document.addEventListener("htmx:error", (event) => {
    const source = event.detail?.ctx?.sourceElement || event.target;
    if (!(source instanceof Element) || isPolling(source) || source.closest("[data-autosave]")) return;
    showNoResponse(source);
  });
})();
