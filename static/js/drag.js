/* In the frame of an email: dragging sections, and showing where a dragged section, tile or file will land. */
(() => {
  "use strict";
  const { email } = window, { box, holds, say, on, put, paint, family, home } = email, html = document.documentElement;
  const THRESHOLD_PX = 6, EDGE_PX = 50, SCROLL_PX = 10, BESIDE_PX = 60;
  let held, over, drop, frame;

  // Where something would land: in the innermost column under it, else between the rows; a line shows it.
  const place = () => {
    const { x, y, thing } = over;
    drop = null;
    if (x < -BESIDE_PX || x > innerWidth + BESIDE_PX || y < -BESIDE_PX || y > innerHeight + BESIDE_PX) return put("line");
    const column = thing.may && email.columns.findLast((candidate) => {
      const { left, right, top, bottom } = candidate.start.parentElement.closest("td").getBoundingClientRect();
      return !(thing.end && holds(thing, candidate.start)) && x >= left && x <= right && y >= top && y <= bottom;
    });
    const all = family(column?.inside, column?.number).filter((section) => section.id !== thing.id);
    const next = all.find((section) => { const { top, height } = box(section); return height && y < top + height / 2; });
    const { left, width, top, bottom } = box(next || all.at(-1) || column || email.root);
    put("line", { left, width, height: 3, top: (next || !all.length ? top : bottom) - 1 });
    drop = { before: next?.id || null, into: home(column?.inside, column?.number) };
  };
  // The email is scrolled for as long as the pointer rests at its edge.
  const scroll = () => {
    frame = 0;
    const by = !over ? 0 : over.y < EDGE_PX ? -SCROLL_PX : over.y > innerHeight - EDGE_PX ? SCROLL_PX : 0, was = scrollY;
    if (!by) return;
    scrollBy(0, by);
    if (scrollY !== was) place(), frame = requestAnimationFrame(scroll);
  };
  const aim = (x, y, thing) => {
    over = { x, y, thing };
    place();
    frame ||= requestAnimationFrame(scroll);
  };
  // The click that a hand makes by letting go chooses nothing.
  const stop = (event) => { event.preventDefault(); event.stopImmediatePropagation(); };
  email.aim = aim;
  email.release = (keep) => {
    const wanted = keep && drop, id = held?.id;
    if (email.held) {
      if (wanted) say("move", { id, ...drop });
      addEventListener("click", stop, true);
      setTimeout(() => removeEventListener("click", stop, true), 50);
    }
    if (held && html.hasPointerCapture(held.pointer)) html.releasePointerCapture(held.pointer);
    cancelAnimationFrame(frame);
    held = over = drop = email.held = null;
    frame = 0;
    put("line");
    paint();
    return wanted;
  };

  on("pointerdown", (event) => {
    const section = email.find(event), grips = email.grips(event);
    // A finger scrolls, except at the handle
    if (email.locked || email.writes(event) || event.button || !section?.id || !grips || (event.pointerType !== "mouse" && grips === true)) return;
    held = { ...section, x: event.clientX, y: event.clientY, pointer: event.pointerId };
  });
  on("pointermove", (event) => {
    const { clientX: x, clientY: y } = event;
    if (!held || event.pointerId !== held.pointer) return;
    // Let go of where no event told of it
    if (!event.buttons) return email.release();
    if (!email.held && Math.hypot(x - held.x, y - held.y) > THRESHOLD_PX) {
      email.leave();
      email.held = held;
      email.showArrived();
      html.setPointerCapture(event.pointerId);
      paint();
    }
    if (email.held) aim(x, y, held);
  });
  const ifDragging = (handler) => (event) => { if (held && event.pointerId === held.pointer) handler(); };
  on("pointerup", ifDragging(() => email.release(true)));
  for (const name of ["pointercancel", "lostpointercapture"]) on(name, ifDragging(() => email.release()));
  // Of the window, not of a text in it that is left by the drag
  on("blur", ({ target }) => { if (held && target === window) email.release(); }, window);
  on("pagehide", () => { if (held) email.release(); }, window);
  on("dragstart", (event) => event.preventDefault());

  // Rows that are swapped meanwhile: what is held is found again, or is gone.
  const { moved } = email;
  email.moved = () => {
    moved();
    const thing = over?.thing, now = thing?.id && email.sections.find(({ id }) => id === thing.id);
    if (thing?.id && !now) return email.release();
    if (now) Object.assign(thing, now);
    if (over) place();
  };

  // A file from outside lands in the picture under it, else between the rows as a new one.
  const hasFile = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
  const pictureAt = ({ target }) => { const section = email.sections.findLast((other) => other.id && holds(other, target)); return section?.picture ? section : null; };
  on("dragover", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = email.locked ? "none" : "copy";
    if (email.locked) return;
    const section = pictureAt(event);
    if (!section) return aim(event.clientX, event.clientY, { may: true });
    if (over) email.release();
    put("pick", box(section));
  });
  on("dragleave", ({ relatedTarget }) => { if (!relatedTarget) email.release(); });
  on("drop", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    const section = pictureAt(event), spot = email.release(true);
    if (!email.locked) say("picture", { file: [...event.dataTransfer.files].find(({ type }) => type.startsWith("image/")) || null, id: section?.id ?? null, ...spot });
  });

  // From the rail: the page sees the hand, this frame knows the place.
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || email.locked) return;
    const { over: at, drop: what } = data;
    if (at) aim(at.x, at.y, (at.id && { ...email.sections.find(({ id }) => id === at.id), may: at.may }) || { may: at.may });
    else if ("over" in data && !email.held) email.release();
    if (!what) return;
    const spot = email.release(true);
    if (spot) what.kind ? say("add", { kind: what.kind, ...spot }) : say("move", { id: what.id, ...spot });
  });
})();
