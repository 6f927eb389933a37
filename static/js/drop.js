/* Dragging a tile of the palette or a line of the outline to a place in the outline or in the canvas.

Nothing in the page moves while something is dragged. A label follows the pointer, a line shows the place, and the place
is worked out anew from the page as it is, so that a list that is drawn anew in the middle does no harm. The pointer is
captured by the root element, which nothing replaces: every drag ends with one call of `end`. */
(() => {
  "use strict";
  const editor = window.editor, canvas = document.getElementById("canvas");
  if (!editor || editor.locked || !canvas) return;
  const { root, byId, emit, add, move } = editor, html = document.documentElement;
  const THRESHOLD_PX = 6, EDGE_PX = 44, SCROLL_PX = 12;
  let drag = null;

  const label = document.createElement("div"), line = document.createElement("div");
  label.className = "drag-label";
  line.className = "drop-line";
  const post = (detail) => emit("canvas:post", detail);
  const inColumns = (kind) => !!root.querySelector(`[data-palette] [data-kind="${CSS.escape(kind)}"][data-inner]`);
  const itemOf = (key) => root.querySelector(`#list li[data-key="${CSS.escape(key)}"]`);
  const middle = (item) => { const { top, height } = item.firstElementChild.getBoundingClientRect(); return top + height / 2; };

  // The innermost list at a height, and the section there that what is dragged would stand before.
  const placeInOutline = (y) => {
    const item = drag.key && itemOf(drag.key);
    const lists = [...root.querySelectorAll("#list .lines")].filter((list) => !item?.contains(list) && (drag.inColumns || !list.dataset.parent));
    const list = lists.findLast((candidate) => { const { top, bottom } = candidate.getBoundingClientRect(); return y >= top && y <= bottom; }) || lists[0];
    const items = [...(list?.children || [])].filter((other) => other !== item), next = items.find((other) => y < middle(other)) || null;
    return { list, items, next, stays: !!item && item.parentElement === list && (item.nextElementSibling || null) === next };
  };
  const aimAtOutline = (y) => {
    const { list, items, next } = placeInOutline(y), around = (list || byId("list")).getBoundingClientRect();
    const top = next ? next.getBoundingClientRect().top : items.length ? items.at(-1).getBoundingClientRect().bottom : list ? around.top + 4 : around.bottom;
    Object.assign(line.style, { left: `${around.left}px`, width: `${around.width}px`, top: `${top - 1}px` });
  };
  const spotInOutline = (y) => {
    const { list, next } = placeInOutline(y), { parent, column } = list?.dataset || {};
    return { before: next?.dataset.key || null, into: parent ? { id: parent, column } : null };
  };

  // With a tile the outline opens in the rail once the pointer comes over its tab. Where the rail fills the window, so
  // that no canvas is beside it, the outline opens over the rail at once.
  const openOutline = (at) => {
    if (!canvas.checkVisibility()) editor.$("#left").classList.add("dragging");
    else if (at?.id === "tab-outline") editor.tab("outline"), drag.hasOpened = true;
  };
  const aim = () => {
    // A message that lies over the canvas for a moment takes nothing away from it
    const { x, y } = drag, was = drag.over;
    const at = document.elementsFromPoint(x, y).map((element) => element.closest("#outline, #stage, #tab-outline")).find((element) => element);
    drag.over = { outline: "outline", stage: "canvas" }[at?.id] || null;
    if (drag.kind) openOutline(at);
    line.hidden = drag.over !== "outline";
    if (drag.over === "outline") aimAtOutline(y);
    if (drag.over === "canvas") {
      const { left, top } = canvas.getBoundingClientRect();
      post({ over: { x: x - left, y: y - top, id: drag.key, may: drag.inColumns } });
    } else if (was === "canvas") post({ over: null });
  };
  // A list is scrolled for as long as the pointer rests at its edge.
  const scroll = () => {
    if (!drag?.started) return;
    drag.frame = requestAnimationFrame(scroll);
    const left = editor.$("#left"), box = left.matches(".dragging") ? byId("outline") : left, { top, bottom } = box.getBoundingClientRect();
    const by = drag.over !== "outline" ? 0 : drag.y < top + EDGE_PX ? -SCROLL_PX : drag.y > bottom - EDGE_PX ? SCROLL_PX : 0;
    if (by) box.scrollBy(0, by), aimAtOutline(drag.y);
  };

  const stop = (event) => { event.preventDefault(); event.stopImmediatePropagation(); };
  const begin = (event) => {
    drag.started = true;
    html.setPointerCapture(event.pointerId);
    label.textContent = drag.label;
    document.body.append(label, line);
    root.dataset.drag = drag.kind || drag.key;
    drag.frame = requestAnimationFrame(scroll);
  };
  const end = (keep) => {
    const was = drag;
    if (!was) return;
    if (!was.started) { drag = null; return; }
    const place = was.over === "outline" && placeInOutline(was.y), spot = place && spotInOutline(was.y);
    drag = null;
    cancelAnimationFrame(was.frame);
    if (html.hasPointerCapture(was.pointer)) html.releasePointerCapture(was.pointer);
    label.remove();
    line.remove();
    delete root.dataset.drag;
    editor.$("#left").classList.remove("dragging");
    if (was.hasOpened) editor.tab("palette");
    // The click that letting go makes is none
    addEventListener("click", stop, { capture: true, once: true });
    setTimeout(() => removeEventListener("click", stop, { capture: true }), 50);
    if (keep && was.over === "canvas") post({ drop: { kind: was.kind, id: was.key } });
    else post({ over: null });
    if (!keep || !spot || place.stays) return;
    was.kind ? add(was.kind, spot) : move(was.key, spot);
  };

  root.addEventListener("pointerdown", (event) => {
    const { target, button, isPrimary, pointerType, pointerId, clientX: x, clientY: y } = event;
    if (button || !isPrimary || drag?.started) return;
    // A finger scrolls, except at the grip of a line
    const isFinger = pointerType === "touch", tile = !isFinger && target.closest("[data-palette] [data-kind]");
    const item = target.closest(isFinger ? ".lines .grip" : ".lines .row")?.closest("li");
    const kind = tile ? tile.dataset.kind : item?.dataset.kind;
    if (!tile && !item) return;
    const words = (tile || item.querySelector(".t")).textContent.trim();
    drag = { pointer: pointerId, x, y, from: [x, y], label: words, kind: tile ? kind : null, key: tile ? null : item.dataset.key, inColumns: !!kind && inColumns(kind), over: null };
  });
  addEventListener("pointermove", (event) => {
    if (!drag || event.pointerId !== drag.pointer) return;
    // Let go of where no event told of it
    if (!event.buttons) return end(false);
    [drag.x, drag.y] = [event.clientX, event.clientY];
    if (!drag.started && Math.hypot(drag.x - drag.from[0], drag.y - drag.from[1]) <= THRESHOLD_PX) return;
    if (!drag.started) begin(event);
    label.style.translate = `${drag.x + 12}px ${drag.y + 10}px`;
    aim();
  });
  const ifDragging = (handler) => (event) => { if (drag && event.pointerId === drag.pointer) handler(); };
  addEventListener("pointerup", ifDragging(() => end(true)));
  for (const name of ["pointercancel", "lostpointercapture"]) addEventListener(name, ifDragging(() => end(false)));
  for (const name of ["blur", "pagehide"]) addEventListener(name, () => end(false));
  addEventListener("keydown", (event) => { if (event.key === "Escape" && drag?.started) stop(event), end(false); }, true);
  // The browser's own dragging of links and icons would take the pointer away
  editor.$("#left").addEventListener("dragstart", (event) => event.preventDefault());
  // What changed in the email meanwhile changes where things would land
  document.addEventListener("answer", () => { if (drag?.started) requestAnimationFrame(() => { if (drag?.started) aim(); }); });
})();
