/* In the frame that shows an email: knows its sections, swaps their rows, shows it in light and dark. */
(() => {
  "use strict";
  const html = document.documentElement, email = (window.email = { locked: true });
  let have = document.currentScript.dataset.have.split(","), view = "";
  email.say = (to, detail) => parent.postMessage({ to, ...detail }, "*");

  // Comments say where what begins and ends: [key, label, column, may stand in one], the number of a column, all rows.
  const scan = (within) => {
    const open = [], found = { sections: [], columns: [] };
    const walk = document.createTreeWalker(within, NodeFilter.SHOW_COMMENT);
    for (let node; (node = walk.nextNode());) {
      if (node.data === "/cn:" && open.length) open.pop().end = node;
      if (!node.data.startsWith("cn:")) continue;
      const told = JSON.parse(node.data.slice(3)), one = { start: node, inside: open.findLast((other) => other.id) };
      if (told.map) [one.id, one.label, one.column, one.may] = told, found.sections.push(one);
      else if (told.at) found.root = one;
      else one.number = told, found.columns.push(one);
      open.push(one);
    }
    return found;
  };
  const again = () => { Object.assign(email, scan(document.body)); email.moved?.(); };
  const nodes = (one) => {
    const all = [one.start];
    while (all.at(-1) !== one.end) all.push(all.at(-1).nextSibling);
    return all;
  };
  email.box = (one) => {
    const range = new Range();
    range.setStartAfter(one.start);
    range.setEndBefore(one.end);
    return range.getBoundingClientRect();
  };
  email.holds = (one, node) => one.start.compareDocumentPosition(node) & 4 && one.end.compareDocumentPosition(node) & 2;

  // Dark as it was designed: what asks for a scheme is told which. Forced: as programs do that turn colours around.
  const look = () => {
    const dark = view === "dark";
    const tell = (one, was) => (one.was ??= was).replace(/\(prefers-color-scheme:\s*(\w+)\)/g,
      (all, asked) => ((asked === "dark") === dark ? "(min-width:0)" : "(max-width:0)"));
    for (const sheet of document.styleSheets) for (const rule of sheet.cssRules)
      if (rule.media) rule.media.mediaText = tell(rule, rule.media.mediaText);
    for (const one of document.querySelectorAll("source[media]")) one.media = tell(one, one.media);
    html.style.setProperty("color-scheme", dark ? "dark" : "light", "important");
    html.toggleAttribute("data-forced", view === "forced");
    email.moved?.();
  };

  const wear = (from, to) => {
    for (const { name } of [...to.attributes]) if (!from.hasAttribute(name)) to.removeAttribute(name);
    for (const { name, value } of from.attributes) if (to.getAttribute(name) !== value) to.setAttribute(name, value);
  };
  // What stands around the rows is dressed anew; the rows stay.
  const dress = (text) => {
    const told = new DOMParser().parseFromString(text, "text/html"), start = scan(told.body).root.start;
    const rows = nodes(email.root), place = email.root.start.parentNode, around = [...start.parentNode.childNodes];
    document.querySelectorAll("head > style:not([data-canvas])").forEach((one) => one.remove());
    document.head.prepend(...told.head.querySelectorAll("style"));
    for (let to = place, from = start.parentNode; to !== html; [to, from] = [to.parentNode, from.parentNode]) wear(from, to);
    const at = around.indexOf(start);
    place.replaceChildren(...around.slice(0, at), ...rows, ...around.slice(at + 2));
  };
  const apply = ({ frame: [digest, text], rows }) => {
    const tops = email.sections.filter((one) => !one.inside), old = new Map(tops.map((one, at) => [have[at + 1], one]));
    if (!email.root || !rows || rows.some(([name, row]) => row === null && !old.has(name))) return email.say("reload");
    if (digest !== have[0]) dress(text);
    have = [digest, ...rows.map(([name]) => name)];
    const images = new Map();
    for (const [name, one] of old) if (!have.includes(name)) for (const node of nodes(one)) {
      for (const image of node.querySelectorAll?.("img") || []) images.set(image.src, image);
      node.remove();
    }
    let last = email.root.start;
    for (const [name, row] of rows) {
      const made = row === null ? null : new Range().createContextualFragment(row);
      // A picture that stays is the same element, so that it does not blink.
      for (const image of made?.querySelectorAll("img") || []) {
        const same = images.get(image.src);
        if (images.delete(image.src)) wear(image, same), image.replaceWith(same);
      }
      for (const node of made ? [...made.childNodes] : nodes(old.get(name))) {
        if (last.nextSibling !== node) last.after(node);
        last = node;
      }
    }
    while (last.nextSibling !== email.root.end) last.nextSibling.remove();
    again();
    look();
    email.say("shown", { have });
  };

  addEventListener("message", ({ source, data }) => {
    if (source !== parent) return;
    if (data.view) view = data.view, look();
    if (data.frame) apply(data);
    if (data.to === "hello") email.say("ready", { have });
  });
  again();
})();
