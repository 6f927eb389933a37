/* In the frame of an email: finds its sections, and shows it in the light or dark colour scheme. */
(() => {
  "use strict";
  const html = document.documentElement, email = (window.email = { locked: true });
  let view = "";
  email.have = document.currentScript.dataset.have.split(",");
  email.say = (to, detail) => parent.postMessage({ to, ...detail }, "*");

  // Comments say where what begins and ends: [key, label, column, may stand in one, has a picture], the number of a column, all rows.
  const scan = (within) => {
    const open = [], result = { sections: [], columns: [] };
    const walk = document.createTreeWalker(within, NodeFilter.SHOW_COMMENT);
    for (let node; (node = walk.nextNode());) {
      if (node.data === "/cn:" && open.length) open.pop().end = node;
      if (!node.data.startsWith("cn:")) continue;
      const data = JSON.parse(node.data.slice(3)), part = { start: node, inside: open.findLast((other) => other.id) };
      if (data.map) [part.id, part.label, part.column, part.may, part.picture] = data, result.sections.push(part);
      else if (data.at) result.root = part;
      else part.number = data, result.columns.push(part);
      open.push(part);
    }
    return result;
  };
  const rescan = () => { Object.assign(email, scan(document.body)); email.moved?.(); };
  const nodes = (part) => {
    const all = [part.start];
    while (all.at(-1) !== part.end) all.push(all.at(-1).nextSibling);
    return all;
  };
  // Rows that are being swapped are nowhere for a moment: what has the focus among them loses it, and asks.
  email.box = (part) => {
    const range = new Range();
    if (part.start.isConnected && part.end.isConnected) range.setStartAfter(part.start), range.setEndBefore(part.end);
    return range.getBoundingClientRect();
  };
  email.holds = (part, node) => part.start.compareDocumentPosition(node) & 4 && part.end.compareDocumentPosition(node) & 2;

  // The first section of its family cannot go up, and the last not down.
  email.limitMoves = (tools, section) => {
    const all = section ? email.family(section.inside, section.column) : [];
    for (const [name, end] of [["up", 0], ["down", -1]]) tools.querySelector(`[data-act=${name}]`).disabled = all.at(end) === section;
  };

  // Dark as it was designed: what asks for a scheme is told which. Forced: as programs do that turn colours around.
  const applyScheme = () => {
    const dark = view === "dark";
    const replaceScheme = (holder, was) => (holder.was ??= was).replace(/\(prefers-color-scheme:\s*(\w+)\)/g,
      (all, scheme) => ((scheme === "dark") === dark ? "(min-width:0)" : "(max-width:0)"));
    for (const sheet of document.styleSheets) for (const rule of sheet.cssRules)
      if (rule.media) rule.media.mediaText = replaceScheme(rule, rule.media.mediaText);
    for (const source of document.querySelectorAll("source[media]")) source.media = replaceScheme(source, source.media);
    html.style.setProperty("color-scheme", dark ? "dark" : "light", "important");
    html.toggleAttribute("data-forced", view === "forced");
    email.moved?.();
  };

  addEventListener("message", ({ source, data }) => {
    if (source !== parent) return;
    if (data.view) view = data.view, applyScheme();
    if (data.to === "hello") email.say("ready", { have: email.have });
  });
  Object.assign(email, { scan, nodes, rescan() { rescan(); applyScheme(); } });
  rescan();
})();
