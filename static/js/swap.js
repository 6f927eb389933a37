/* In the frame of an email: replaces the rows that changed, and shows typed text before it is saved. */
(() => {
  "use strict";
  const { email, document: { documentElement: html } } = window, { scan, nodes } = email;

  const copyAttributes = (from, to) => {
    for (const { name } of [...to.attributes]) if (!from.hasAttribute(name)) to.removeAttribute(name);
    for (const { name, value } of from.attributes) if (to.getAttribute(name) !== value) to.setAttribute(name, value);
  };
  // What stands around the rows is dressed anew; the rows stay.
  const replaceFrame = (page, { start }) => {
    const { root } = email, place = root.start.parentNode, around = [...start.parentNode.childNodes], rows = new Set(nodes(root));
    document.querySelectorAll("head > style:not([data-canvas])").forEach((style) => style.remove());
    document.head.prepend(...page.head.querySelectorAll("style"));
    for (let to = place, from = start.parentNode; to !== html; [to, from] = [to.parentNode, from.parentNode]) copyAttributes(from, to);
    const at = around.indexOf(start);
    // The rows never leave the document: one that did would lose its caret, and the click whose button is down on it
    for (const node of [...place.childNodes]) if (!rows.has(node)) node.remove();
    root.start.before(...around.slice(0, at));
    root.end.after(...around.slice(at + 2));
  };
  const apply = ({ frame: [digest, text], rows }) => {
    const { have } = email, tops = email.sections.filter((section) => !section.inside), old = new Map(tops.map((section, at) => [have[at + 1], section]));
    const page = digest !== have[0] && new DOMParser().parseFromString(text, "text/html"), root = page && scan(page.body).root;
    if (!email.root || !rows || (page && !root)) return email.say("reload");
    // The answer leaves out a row that it takes for known, but the row was written in since the question: ask again
    if (rows.some(([name, row]) => row === null && !old.has(name))) {
      email.say("shown", { have: email.have });
      return email.say("outdated");
    }
    if (page) replaceFrame(page, root);
    // Nothing takes the row away in which somebody writes; what it is by now is asked for once they leave it.
    const caret = email.writing && tops.find((section) => section.id && email.holds(section, email.writing));
    const key = (row) => JSON.parse(row.slice(row.indexOf("cn:") + 3, row.indexOf("-->")))[0];
    rows = rows.map(([name, row]) => {
      if (!row || !caret || key(row) !== caret.id) return [name, row];
      email.withheld = true;
      return [have[tops.indexOf(caret) + 1], null];
    });
    email.have = [digest, ...rows.map(([name]) => name)];
    // What is in no row that stays is taken away first. The row that is written in never moves: it would lose its caret.
    // Only that row may be without a digest here.
    const written = new Set(caret ? nodes(caret) : []), images = new Map();
    const staying = new Map(rows.filter(([, row]) => row === null).map(([name]) => [name, nodes(name ? old.get(name) : caret)]));
    const kept = new Set([...staying.values()].flat());
    for (const node of nodes(email.root).slice(1, -1)) if (!kept.has(node)) {
      for (const image of node.querySelectorAll?.("img") || []) images.set(image.src, image);
      node.remove();
    }
    let last = email.root.start;
    for (const [name, row] of rows) {
      const fragment = row === null ? null : new Range().createContextualFragment(row);
      // A picture that stays is the same element, so that it does not blink.
      for (const image of fragment?.querySelectorAll("img") || []) {
        const same = images.get(image.src);
        if (images.delete(image.src)) copyAttributes(image, same), image.replaceWith(same);
      }
      for (const node of fragment ? [...fragment.childNodes] : staying.get(name)) {
        while (written.has(node) && last.nextSibling !== node) last.nextSibling.remove();
        if (last.nextSibling !== node) last.after(node);
        last = node;
      }
    }
    while (last.nextSibling !== email.root.end) last.nextSibling.remove();
    email.rescan();
    if (email.writing?.isConnected === false) email.leave();
    show();
    email.say("shown", { have: email.have });
  };

  // What is being typed stands in its one place before it is kept: where a text of the section is what it was until now.
  let typed, spot;
  const show = () => {
    const section = typed && email.sections.find(({ id }) => id === typed.id);
    if (!section || (email.writing && email.holds(section, email.writing))) return;
    if (!spot?.isConnected || spot.data !== spot.shown) {
      const matches = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      for (let node; (node = walk.nextNode());) if (email.holds(section, node) && typed.was.includes(node.data.trim())) matches.push(node);
      spot = matches.length === 1 ? matches[0] : null;
    }
    if (!spot || spot.data.trim() === typed.now) return;
    spot.data = spot.shown = typed.now;
    email.stale(section);
  };
  // The row that holds a section is no longer as the server made it, so it is asked for anew. Sections are looked up by
  // id, because every swap describes them anew.
  email.stale = ({ id }) => {
    let section = email.sections.find((other) => other.id === id);
    while (section?.inside) section = section.inside;
    const at = email.sections.filter((other) => !other.inside).indexOf(section);
    if (at < 0) return;
    email.have[at + 1] = "";
    email.say("shown", { have: email.have });
  };

  // A click needs the same element under the pointer at its press and at its release, so rows that arrive in between are
  // shown after the click.
  const CLICK_MS = 50;
  let isPressed = false, timer, arrived = [];
  email.showArrived = () => {
    clearTimeout(timer);
    isPressed = false;
    for (const data of arrived.splice(0)) apply(data);
  };
  const on = (name, listener, target = document) => target.addEventListener(name, listener, true);
  on("pointerdown", () => { clearTimeout(timer); isPressed = true; });
  for (const name of ["pointerup", "pointercancel"]) on(name, () => { clearTimeout(timer); timer = setTimeout(email.showArrived, CLICK_MS); });
  // A release that no event told of
  on("pointermove", ({ buttons }) => { if (isPressed && !buttons) email.showArrived(); });
  on("blur", ({ target }) => { if (target === window) email.showArrived(); }, window);
  addEventListener("message", ({ source, data }) => {
    if (source !== parent) return;
    if (data.frame) isPressed ? arrived.push(data) : apply(data);
    if (!("typed" in data)) return;
    if (typed?.name !== data.typed?.name || typed?.id !== data.typed?.id) spot = null;
    typed = data.typed;
    show();
  });
})();
