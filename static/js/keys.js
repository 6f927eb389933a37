/* Keys and the jump box: single keys never inside a field, never destructive, and none where somebody switched them off. */
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

  // In the box the arrows walk through what was found; typing goes on in the field.
  const walk = (event) => {
    const dialog = box();
    if (!dialog?.open) return false;
    const stops = [$("input", dialog), ...dialog.querySelectorAll("#jump-found a")];
    const at = stops.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); stops[(at + step + stops.length) % stops.length]?.focus(); return true; }
    if (event.key === "Enter" && at === 0 && stops[1]) { event.preventDefault(); stops[1].click(); return true; }
    if (at > 0 && event.key.length === 1 && !event.ctrlKey && !event.metaKey) stops[0].focus();
    return true;
  };

  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k" && box()) {
      event.preventDefault();
      box().open ? box().close() : jump();
      return;
    }
    if (event.key === "Escape" && event.target.matches("main input[type=search]") && !event.target.value) event.target.blur();
    if (walk(event) || off() || event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
    const page = Date.now() - going < 1200 && pages[event.key];
    going = event.key === "g" ? Date.now() : 0;
    if (page) { if ($(`a[href="${page}"]`)) location.href = page; return; }
    if (event.key === "/") { const field = $("main input[type=search]"); if (field) { event.preventDefault(); field.focus(); field.select(); } else { event.preventDefault(); jump(); } }
    if (event.key === "c") { const link = $("[data-key=c]"); link ? link.click() : $('a[href="/campaigns"]') && (location.href = "/campaigns/new"); }
    if (event.key === "?") { const help = $("#keys"); if (help && !help.open) help.showModal(); }
  });
})();
