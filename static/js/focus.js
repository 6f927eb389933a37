/* Keyboard focus: when a swap removes the focused element, the element that replaces it gets the focus. */
(() => {
  "use strict";
  const ABLE = "a[href], button, input, select, textarea, summary, [tabindex], [contenteditable]", KEPT = "focus";
  const byId = (id) => document.getElementById(id);
  const isLost = () => !document.activeElement || document.activeElement === document.body;
  const isFocusable = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.matches(":disabled, [tabindex='-1'], [type=hidden]");
  const listFocusable = (root) => [...root.querySelectorAll(ABLE)].filter(isFocusable);
  const label = (element) => element.getAttribute("aria-label") || element.textContent.trim().slice(0, 80);

  // Where somebody is: what they are on, and its place in each part of the page around it that has a name.
  const describe = (element) => {
    const around = [];
    const acts = element.closest(".bulk");  // they leave with the choice they were for
    for (let root = element.parentElement; root && around.length < 4; root = root.parentElement) if (root.getAttribute("id")) around.push([root.getAttribute("id"), acts ? 0 : listFocusable(root).indexOf(element)]);
    return { id: element.id, tag: element.tagName, name: element.name || "", value: element.name && element.tagName === "BUTTON" ? element.value : "", label: label(element), around };
  };
  const findSimilar = (all, was) => {
    const same = all.filter((element) => element.tagName === was.tag);
    return same.find((element) => was.id && element.id === was.id) || same.find((element) => was.name && element.name === was.name && (element.tagName !== "BUTTON" || element.value === was.value)) || same.find((element) => was.label && label(element) === was.label);
  };
  const find = (was) => {
    const modal = [...document.querySelectorAll("dialog[open]")].pop();
    const roots = was.around.map(([id, at]) => [byId(id), at]).filter(([root]) => root && (!modal || modal.contains(root)));
    for (const [root, at] of roots) {
      const all = listFocusable(root), match = findSimilar(all, was) || all[Math.max(0, Math.min(at, all.length - 1))];
      if (match) return match;
    }
    return modal ? listFocusable(modal)[0] : null;
  };

  // A message that leaves gives the focus back to where it was before.
  let last = null, at = null, before = null;
  document.addEventListener("focusin", ({ target }) => {
    if (!(target instanceof Element)) return;
    if (last && !last.closest(".toast") && target.closest(".toast")) before = at;
    [last, at] = [target, describe(target)];
  });
  // Nobody is sent back to what they left themselves.
  const forget = () => setTimeout(() => { if (isLost()) last = null; });
  document.addEventListener("pointerdown", forget);
  document.addEventListener("keydown", ({ key, target }) => { if (key === "Escape" && target.matches("[type=search]")) forget(); }, true);
  const restore = () => {
    if (!last || !isLost() || document.hidden) return;
    const toast = !last.isConnected && at.around.every(([id]) => !byId(id) || id === "main") && before;
    const target = last.isConnected && isFocusable(last) ? last : find(toast || at);
    (target || byId("main"))?.focus({ preventScroll: true });
  };
  // A dialog that a menu opened gives the focus back to the button of the menu, which is closed by then.
  let menu = null;
  document.addEventListener("click", ({ target }) => { if (!target.closest?.("dialog")) menu = target.closest?.("[popover]"); }, true);
  document.addEventListener("close", ({ target }) => setTimeout(() => {
    const buttons = menu && target.matches("dialog") && isLost() ? document.querySelectorAll(`[popovertarget="${menu.id}"]`) : [];
    [...buttons].find(isFocusable)?.focus();
  }), true);
  let due = 0;
  new MutationObserver(() => { if (last && isLost() && !due) due = setTimeout(() => { due = 0; restore(); }, 30); }).observe(document.body, { childList: true, subtree: true });

  // A link or a button that leads to the same page again, as chips and headings of a table do.
  addEventListener("pagehide", () => {
    if (!last?.isConnected || !last.closest("main, .toast") || !last.matches(":focus-visible")) return;
    sessionStorage.setItem(KEPT, JSON.stringify([location.pathname, last.closest(".toast") ? before || at : at]));
  });
  const start = () => {
    const kept = JSON.parse(sessionStorage.getItem(KEPT) || "null");
    sessionStorage.removeItem(KEPT);
    if (kept && kept[0] === location.pathname && !location.hash && isLost()) find(kept[1])?.focus({ preventScroll: true });
  };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();
})();
