/* In the frame of an email: highlights sections under the pointer and reports clicks to the page. */
(() => {
  "use strict";
  const { email, document: { documentElement: html } } = window, { box, holds, say } = email;
  // The tools belong to the section that is chosen, so that they stay while the pointer comes to them over others; as long
  // as none is, to the one under the pointer.
  let chosen, over, handled;
  const findSection = (id) => email.sections.find((section) => section.id === id);

  // What lies over the email has its own tree: no style reaches it.
  const host = html.appendChild(document.createElement("div")), shade = host.attachShadow({ mode: "closed" });
  shade.append(document.querySelector("head > template").content);
  const part = (name) => shade.querySelector(`.${name}`);
  // A frame that is moved may shorten the document, which then scrolls: rectangle and scroll offset are of one moment, so
  // each rectangle is measured right before it is used.
  const put = (name, rect) => {
    const spot = part(name), { scrollX: x, scrollY: y } = window;
    spot.hidden = !rect?.height;
    for (const side of spot.hidden ? [] : ["left", "top", "width", "height"])
      spot.style[side] = `${rect[side] + (side === "left" ? x : side === "top" ? y : 0)}px`;
  };
  // The words around a section, line by line, in the window's pixels.
  const NEAR_PX = 60, GAP_PX = 1, ADD_PX = 24;
  const lines = ({ top, bottom }) => {
    const rectangles = [], range = new Range(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) {
      if (!node.data.trim()) continue;
      range.selectNodeContents(node);
      for (const line of range.getClientRects()) if (line.width > 1 && line.bottom > top - NEAR_PX && line.top < bottom + NEAR_PX) rectangles.push(line);
    }
    return rectangles;
  };
  const measureCovered = (area, all) => all.reduce((sum, line) => sum
    + Math.max(0, Math.min(area.right, line.right) - Math.max(area.left, line.left) + GAP_PX) * Math.max(0, Math.min(area.bottom, line.bottom) - Math.max(area.top, line.top)), 0);
  // The name of a section and its tools stand above it, on its edge or within it: where no word is under them. The tools
  // take the best of these places; a name that would cover something is left out, the page shows it beside.
  const label = (rect, held, adds) => {
    const tools = part("tools"), tag = part("tag"), beside = adds ? ADD_PX / 2 : 0, end = html.scrollHeight - scrollY;
    const best = (element, { top, bottom, left: start, right }, lefts, taken) => {
      const { offsetWidth: width, offsetHeight: height } = element;
      const tops = [top - height, top - height / 2, top, bottom - height, bottom - height / 2, bottom].filter((y) => y + scrollY >= 0 && y + height <= end);
      const spots = (tops.length ? tops : [top]).flatMap((y) => lefts(start, right, width).map((x) => ({ left: x, right: x + width, top: y, bottom: y + height })));
      const rated = spots.map((spot) => [measureCovered(spot, taken), spot]), least = Math.min(...rated.map(([area]) => area));
      const [area, spot] = rated.find(([sum]) => sum === least);
      element.style.left = `${spot.left - start}px`;
      element.style.top = `${spot.top - top}px`;
      return [area, spot];
    };
    tag.style.visibility = "";
    const spot = held?.height && best(tools, held, (left, right, width) => [right - width, left], lines(held))[1];
    if (!rect?.height) return;
    const [area] = best(tag, rect, (left, right, width) => [left + beside, right - width], spot ? [...lines(rect), spot] : lines(rect));
    if (area) tag.style.visibility = "hidden";
  };
  const paint = () => {
    const section = email.held ? null : over || chosen, written = (other) => email.writing && holds(other, email.writing);
    // Nothing to add with lies near a text that is being written
    const adds = !!over && !email.writing && !email.locked;
    put("pick", chosen && !written(chosen) && box(chosen));
    handled = email.held || email.locked ? null : chosen || over;
    put("over", section && box(section));
    put("hold", handled && box(handled));
    email.limitMoves(shade, handled);
    const rect = section && box(section), held = handled && box(handled);
    part("tag").textContent = section?.label;
    part("over").className = `over${adds ? "" : " still"}${section && written(section) ? " written" : ""}`;
    part("over").style.setProperty("--out", `${Math.max(0, Math.min(ADD_PX / 2, rect?.left ?? 0))}px`);
    label(rect, held, adds);
    host.toggleAttribute("data-turned", html.hasAttribute("data-forced"));
    html.toggleAttribute("data-held", !!email.held);
  };
  email.moved = () => {
    [chosen, over] = [chosen, over].map((section) => section && findSection(section.id));
    paint();
  };
  const choose = (id, scroll) => {
    chosen = findSection(id);
    const rect = scroll && chosen && !(email.writing && holds(chosen, email.writing)) && box(chosen);
    if (rect?.height && (rect.top < 40 || rect.bottom > innerHeight - 20))
      scrollBy({ top: rect.top - Math.max(40, (innerHeight - rect.height) / 3), behavior: scroll });
    paint();
  };

  const family = (inside, column) => email.sections.filter((section) => section.inside === inside && (!inside || section.column === column));
  const home = (inside, column) => (inside ? { id: inside.id, column } : null);
  const act = (name, section, focus) => {
    const all = family(section.inside, section.column), at = all.indexOf(section) + (name === "after");
    if (name !== "drag") email.leave();
    if (name === "before" || name === "after") say("add", { kind: null, before: all[at]?.id || null, into: home(section.inside, section.column), focus });
    else if (name !== "drag") say("act", { id: section.id, act: name });
  };

  // In a text that is being written all is the browser's own.
  const writes = ({ target }) => email.writing?.contains(target);
  const on = (name, handler, target = document) => target.addEventListener(name, handler, true);
  const isTool = () => !!shade.querySelector(".tools:hover");
  const find = ({ target }) => (target === host ? (isTool() ? handled : over || chosen) : email.sections.findLast((section) => section.id && holds(section, target)));
  on("pointermove", (event) => {
    const section = find(event);
    if (section !== over && event.pointerType === "mouse") over = section, paint();
  });
  on("pointerleave", () => { over = null; paint(); }, html);
  // A text is entered by a click, with a finger by the second one, if chosen by a letter. Where the
  // page has not told yet what the text is, it is asked, and what is typed until it answers is put in then.
  email.texts = {};
  let entered;
  const writable = (section) => !!section && Object.hasOwn(email.texts, section.id);
  const enter = (section, how = {}) => {
    const { id } = section;
    if (email.entering?.id === id) return void (email.entering.text += how.text || "");
    if (email.enter(section, how)) return say("select", { id });
    if (how.text) email.entering = { id, text: how.text };
    say("edit", { id });
  };
  // The text that is being written is left by the click, not by its press: leaving may change its height, and the click
  // would be lost on another element than the one pressed.
  on("mousedown", (event) => { if (email.writing && !event.button && !writes(event)) event.preventDefault(); });
  on("click", (event) => {
    event.preventDefault();
    if (event.target === host || writes(event)) return;
    const section = find(event), again = section && section === chosen && event.detail === 1;
    email.entering = null;
    choose(section?.id);
    if (writable(section) && event.pointerType !== "touch" && email.enter(section, { click: event })) return say("select", { id: section.id });
    email.leave();
    if (event.detail === 1) entered = again && writable(section);
    if (entered) return event.detail === 1 && enter(section, { click: event });
    say("select", { id: section?.id ?? null });
    if (section && event.target.closest("[data-empty]")) say("picture", { id: section.id });
  });
  on("click", (event) => {
    const name = event.target.closest("[data-act]")?.dataset.act, section = event.target.closest(".tools") ? handled : over || chosen;
    // Who works by keys is led to the palette; a hand points at it, and letters go where they went
    if (name && section) act(name, section, !event.detail);
  }, shade);
  // A press on what lies over the email leaves the caret, and what letters go to, where they are.
  on("mousedown", (event) => event.preventDefault(), shade);
  on("dblclick", (event) => event.target !== host && !writes(event) && !entered && say("edit", { id: find(event)?.id ?? null }));
  on("dragstart", (event) => event.preventDefault());
  on("keydown", (event) => {
    const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
    if (writes(event)) return;
    if (key === "Escape" && email.held) return email.release();
    if ((ctrlKey || metaKey) && key.toLowerCase() === "a") {
      event.preventDefault();
      if (writable(chosen)) enter(chosen, { all: true });
      return;
    }
    if (writable(chosen) && key.length === 1 && !ctrlKey && !metaKey && !altKey && event.target !== host) {
      event.preventDefault();
      if (!event.isComposing) enter(chosen, { text: key });
      return;
    }
    if (key === "Tab" || (event.target === host && /^( |Enter)$/.test(key))) return;
    if (ctrlKey || metaKey ? /^[dsyzk]$/i.test(key) : /^(Arrow(Up|Down)|Delete|Backspace|Enter|Escape|\/)$/.test(key)) event.preventDefault();
    say("key", { key, ctrlKey, metaKey, altKey, shiftKey });
  });
  Object.assign(email, { on, writes, find, put, paint, family, home, grips: (event) => event.target !== host || shade.querySelector("[data-act=drag]:hover") });
  on("load", paint);
  on("resize", paint, window);
  on("message", ({ source, data }) => {
    if (source !== parent) return;
    if ("locked" in data) email.locked = data.locked;
    if (data.texts) email.texts = data.texts;
    if (data.text) email.texts[data.text.id] = data.text;
    if ("id" in data) choose(data.id, data.scroll);
  }, window);
})();
