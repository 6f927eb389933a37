/* Keyboard shortcuts and the jump box. Single keys have no effect in a field or if the user has switched them off. */
(() => {
  "use strict";
  const $ = (selector, root = document) => root.querySelector(selector);
  const pages = {
    h: "/", c: "/campaigns", f: "/flows", t: "/templates", p: "/contacts", l: "/lists", a: "/activity", i: "/inbox", s: "/settings",
  };
  const typing = (event) => event.target.closest?.("input, textarea, select, [contenteditable], dialog, iframe");
  const off = () => document.body.dataset.keys === "off";

  const box = () => $("#jump");
  const jump = () => {
    const dialog = box();
    if (!dialog || dialog.open) return;
    for (const menu of document.querySelectorAll("[popover]:popover-open")) menu.hidePopover();
    dialog.showModal();
    const field = $("input", dialog);
    field.select();
    htmx.process(dialog); // a key can come before htmx has looked at the page: then nobody would hear the next line
    htmx.trigger(field, "jump");
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("[data-jump]");
    if (link && box() && !event.ctrlKey && !event.metaKey) { event.preventDefault(); jump(); }
  });

  // In the box the arrows walk through what was found; typing goes on in the field. Enter opens the first result of
  // what was typed, once it is there; without a result the box stays open.
  let entered = null;
  const wanted = (field) => field.value.trim().slice(0, 100);
  const enter = (dialog, field) => {
    const results = $("#jump-found", dialog);
    entered = results?.dataset.q === wanted(field) ? null : wanted(field);
    if (entered === null) $("a:not([data-other])", results)?.click();
  };
  document.addEventListener("htmx:after:swap", () => {
    const dialog = box();
    if (dialog?.open && entered !== null && entered === wanted($("input", dialog))) enter(dialog, $("input", dialog));
  });
  const walk = (event) => {
    const dialog = box();
    if (!dialog?.open) return false;
    const stops = [$("input", dialog), ...dialog.querySelectorAll("#jump-found a")];
    const at = stops.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); stops[(at + step + stops.length) % stops.length]?.focus(); return true; }
    if (event.key === "Enter" && at === 0) { event.preventDefault(); if (!event.isComposing) enter(dialog, stops[0]); return true; }
    if (at > 0 && event.key.length === 1 && !event.ctrlKey && !event.metaKey) stops[0].focus();
    return true;
  };

  // A single key counts once the hand rests, so that no letter of a word does: a word may be typed faster than the page
  // comes that it is meant for, and its first letters may go to a field or a box that closes.
  const REST = 300;
  let word = "", resting = 0, typed = 0, going = 0;
  const act = () => {
    const keys = word, after = Date.now() - going < 1200;
    word = "";
    going = keys === "g" ? Date.now() : 0;
    if (document.querySelector("dialog[open]")) return;
    const page = pages[after && keys.length === 1 ? keys : /^g.$/.test(keys) ? keys[1] : ""];
    if (page) { if ($(`a[href="${page}"]`)) location.href = page; return; }
    if (keys === "c") { const link = $("[data-key=c]"); link ? link.click() : $('a[href="/campaigns"]') && (location.href = "/campaigns/new"); }
  };
  document.addEventListener("keydown", (event) => {
    const letter = event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (letter && typing(event)) typed = Date.now();
    if (event.defaultPrevented) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
      const field = $("main form[action='/jump'] input");
      if (!box() && !field) return;
      event.preventDefault();
      if (field) { field.focus(); field.select(); } else box().open ? box().close() : jump();
      return;
    }
    if (event.key === "Escape" && event.target.matches("main input[type=search]") && !event.target.value) event.target.blur();
    if (walk(event) || off() || !letter || typing(event)) return;
    if (Date.now() - typed < 2 * REST) { typed = Date.now(); return; }
    if (event.key === "/") { const field = $("main input[type=search]"); event.preventDefault(); if (field) { field.focus(); field.select(); } else jump(); }
    if (event.key === "?") { const help = $("#keys"); if (help && !help.open) help.showModal(); }
    word += event.key;
    clearTimeout(resting);
    resting = setTimeout(act, REST);
  });
})();
