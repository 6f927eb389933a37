/* Dialogs, toasts, copying and the warning about unsaved changes. Pages work without them. */
(() => {
  "use strict";
  const $ = (selector, root = document) => root.querySelector(selector);
  const html = document.documentElement;

  // The texts of scripts in the language of the page: t("Uploading %(name)s…", { name }).
  const texts = JSON.parse(document.getElementById("texts")?.textContent || "{}");
  window.t = (text, values = {}) => (texts[text] || text).replace(/%\((\w+)\)s|%%/g, (all, name) => (name ? values[name] : "%"));
  html.classList.add("js");

  // The attribute commandfor, for browsers without it.
  if (!("commandForElement" in HTMLButtonElement.prototype)) {
    document.addEventListener("click", (event) => {
      const button = event.target.closest?.("button[commandfor]");
      const target = button && document.getElementById(button.getAttribute("commandfor"));
      const command = button?.getAttribute("command");
      if (target && command === "show-modal") target.showModal();
      if (target && command === "close") target.close();
    });
  }
  document.addEventListener("click", (event) => {
    if (event.target instanceof HTMLDialogElement && event.target.open) event.target.close();
  });

  // A file dropped beside its field would be opened instead of the page, and what was typed would be lost.
  for (const name of ["dragover", "drop"]) addEventListener(name, (event) => {
    if (event.defaultPrevented || !event.dataTransfer?.types.includes("Files") || event.target.closest?.("input[type=file]")) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "none";
  });

  // A page's menu opens at its button, towards where there is more room.
  document.addEventListener("beforetoggle", (event) => {
    const menu = event.target;
    if (event.newState !== "open" || !menu.matches(".menu:not(#me-menu, #more-menu)")) return;
    const button = [...document.querySelectorAll(`[popovertarget="${menu.id}"]`)].find((candidate) => candidate.offsetParent);
    if (!button) return;
    const at = button.getBoundingClientRect(), high = at.bottom < innerHeight / 2, left = at.left < innerWidth / 2;
    menu.style.inset = [
      high ? at.bottom : "auto", left ? "auto" : html.clientWidth - at.right,
      high ? "auto" : innerHeight - at.top, left ? at.left : "auto",
    ].map((side) => (side === "auto" ? side : `${Math.max(8, side)}px`)).join(" ");
  }, true);

  // Toasts leave after five seconds (fifteen with an action) unless a hand or the keyboard rests on them.
  // They stand where they cover nothing to press: below, in a corner, or above; or at least no button.
  const placeToast = (toast) => {
    const isBelow = (selector) => {
      const { left, right, top, bottom } = toast.getBoundingClientRect();
      return [...document.querySelectorAll(selector)].some((element) => {
        const box = element.checkVisibility() && !element.closest("dialog, [popover], .toast") && element.getBoundingClientRect();
        return box && box.right > left && box.left < right && box.bottom > top && box.top < bottom;
      });
    };
    for (const selector of ["a, button, input, select, textarea, summary", ".btn, button, input, select, textarea"]) {
      for (const spot of ["below", "end", "top", "corner"]) {
        toast.dataset.spot = spot;
        if (!isBelow(selector)) return;
      }
    }
    toast.dataset.spot = "below";
  };
  for (const name of ["resize", "scrollend"]) addEventListener(name, () => $(".toast") && placeToast($(".toast")));
  const watchToast = (toast) => {
    if (!toast) return;
    placeToast(toast);
    if (toast.dataset.watched) return;
    toast.dataset.watched = "yes";
    const wait = toast.querySelector("a, form") ? 15000 : 5000;
    const leave = () => (toast.matches(":hover, :focus-within") ? setTimeout(leave, 1500) : toast.remove());
    setTimeout(leave, wait);
  };
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-dismiss]")) event.target.closest(".toast")?.remove();
  });

  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      const area = Object.assign(document.createElement("textarea"), { value: button.dataset.copy });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const label = $("[data-label]", button) || button;
    const before = label.textContent;
    label.textContent = t("Copied");
    setTimeout(() => { label.textContent = before; }, 1600);
  };
  const insert = (button) => {
    const field = document.getElementById(button.dataset.into);
    if (!field) return;
    field.focus();
    field.setRangeText(button.dataset.insert, field.selectionStart, field.selectionEnd, "end");
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy], [data-insert]");
    if (!button) return;
    button.dataset.copy === undefined ? insert(button) : copy(button);
  });

  // A colour well and its text say the same thing.
  document.addEventListener("input", (event) => {
    const field = event.target;
    if (field.type === "color") { const text = document.getElementById(field.dataset.text); if (text) text.value = field.value; }
    const well = field.dataset?.well && document.getElementById(field.dataset.well);
    const colour = well && `#${field.value.trim().replace(/^#/, "")}`;
    if (well && /^#[0-9a-f]{6}$/i.test(colour)) well.value = colour;
  });

  // A form marked data-guard asks before it loses what was typed.
  let unsaved = null;
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (form?.dataset.guard === undefined) return;
    unsaved = form;
    form.classList.add("changed"); // its buttons stay in sight
    for (const part of form.querySelectorAll(".acts, footer")) part.dataset.unsaved = t("Not saved yet");
  });
  document.addEventListener("submit", () => { unsaved = null; });
  // A form that was sent and not saved is asked about too.
  const guard = window.guard = (form) => { if (form?.method === "post" && form.dataset.autosave === undefined) unsaved = form; };
  document.addEventListener("htmx:error", (event) => guard(event.detail?.ctx?.sourceElement?.closest?.("form")));
  document.addEventListener("htmx:after:swap", ({ detail: { ctx } }) => {
    const form = ctx.sourceElement?.closest?.("form");
    if (ctx.response?.status >= 400 && form?.dataset.guard !== undefined) guard(form);
  });
  // Whether the part of the page that `form` is in may be replaced: only with a yes, if it has what was not saved.
  window.mayLeave = (form) => {
    if (!form || unsaved !== form || !form.isConnected) return true;
    if (!confirm(t("Leave without saving your changes?"))) return false;
    unsaved = null;
    return true;
  };
  addEventListener("beforeunload", (event) => { if (unsaved?.isConnected) event.preventDefault(); });

  // A page change that comes too fast for its fade is not an error.
  for (const name of ["pageswap", "pagereveal"]) addEventListener(name, (event) => {
    for (const promise of ["ready", "updateCallbackDone", "finished"]) event.viewTransition?.[promise].catch(() => {});
  });

  const firstProblem = (root) => {
    const field = root && $("[aria-invalid=true], fieldset[aria-describedby$='-err'] :is(input, select, textarea):not([type=hidden])", root);
    field?.closest("dialog:not([open])")?.showModal();
    (field?.matches("[data-find]") && document.getElementById(`${field.id}-find`) || field)?.focus();
  };
  // Of a thread the message that was opened is seen, not the oldest.
  const showBubble = () => $(".bubble + .bubble[aria-current]")?.scrollIntoView({ block: "center" });
  // What a page that saves itself says of that; the tick beside it is for what is saved.
  const state = window.state = (text, hasFailed = false) => {
    const mark = $("#saved-text");
    if (!mark) return;
    mark.textContent = text;
    mark.classList.toggle("bad", hasFailed);
    mark.previousElementSibling?.toggleAttribute("hidden", hasFailed);
  };

  // Searches keep their address short: empty fields are not sent.
  document.addEventListener("htmx:config:request", (event) => {
    const { request, sourceElement } = event.detail.ctx;
    // Who does not look needs no news; the next beat after coming back brings it.
    if (document.hidden && sourceElement?.getAttribute("hx-trigger")?.startsWith("every")) { event.preventDefault(); return; }
    if (request.method === "GET" && request.body) for (const [key, value] of [...request.body]) if (value === "") request.body.delete(key);
  });
  // A page says for which account it writes, because another tab may have opened another one.
  document.addEventListener("htmx:config:request", (event) => {
    const { request } = event.detail.ctx, { account } = document.body.dataset;
    if (account && request.method !== "GET") request.headers["X-Account"] = account;
  });
  // htmx writes the style attribute of what is replaced on what comes with the same id, which the policy of pages
  // blocks: a style that a script, an extension or the browser's own tools set stays behind.
  addEventListener("htmx:before:swap", (event) => {
    for (const { target, swapSpec } of event.defaultPrevented ? [] : event.detail.tasks) {
      const box = typeof target === "string" ? $(target) : target;
      if (/^(inner|outer)HTML/.test(swapSpec?.style ?? swapSpec))
        for (const element of box?.querySelectorAll?.("[id][style]") ?? []) element.removeAttribute("style");
    }
  });
  document.addEventListener("htmx:after:swap", (event) => {
    const { ctx } = event.detail;
    const target = ctx.target instanceof Element ? ctx.target : document.body;
    // What comes late for a part of a closed dialog does not open it again.
    if (target.matches("dialog:not([open])") && target.children.length) target.showModal();
    if (ctx.response?.status === 422 && !event.target.closest?.("[data-autosave]")) firstProblem(target.isConnected ? target : document.body);
    watchToast($(".toast"));
    if (target.id === "mail") showBubble();
  });

  const start = () => {
    firstProblem(document);
    showBubble();
    // What is chosen of a row that does not fit is not left outside of it
    for (const { parentElement: row, offsetLeft } of document.querySelectorAll(":is(.tabs, .chips) > [aria-current]")) row.scrollLeft = offsetLeft - row.offsetLeft - 60;
    const toast = $(".toast");
    if (toast) { const text = $("[data-text]", toast); text.textContent = text.textContent; watchToast(toast); }
  };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
