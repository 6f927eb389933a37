/* In the frame that shows an email: sections are taken hold of and put elsewhere, kinds dropped from the palette. */
(() => {
  "use strict";
  const { email } = window, { box, holds, say, on, put, paint, family, home } = email;
  let held, drop;

  // Where something would land: in the innermost column under it, else between the rows; a line shows it.
  const aim = (x, y, thing) => {
    const column = thing.may && email.columns.findLast((one) => {
      const { left, right, top, bottom } = one.start.parentElement.closest("td").getBoundingClientRect();
      return !(thing.end && holds(thing, one.start)) && x >= left && x <= right && y >= top && y <= bottom;
    });
    const all = family(column?.inside, column?.number).filter((one) => one.id !== thing.id);
    const next = all.find((one) => { const { top, height } = box(one); return height && y < top + height / 2; });
    const { left, width, top, bottom } = box(next || all.at(-1) || column || email.root);
    put("line", { left, width, height: 3, top: (next || !all.length ? top : bottom) - 1 });
    drop = { before: next?.id || null, into: home(column?.inside, column?.number) };
    if (y < 50 || y > innerHeight - 50) scrollBy(0, y < 50 ? -14 : 14);
  };
  // The click that a hand makes by letting go chooses nothing.
  const stop = (event) => { event.preventDefault(); event.stopImmediatePropagation(); };
  email.release = (keep) => {
    if (keep && drop && email.held) {
      say("move", { id: held.id, ...drop });
      addEventListener("click", stop, true);
      setTimeout(() => removeEventListener("click", stop, true), 50);
    }
    held = drop = email.held = null;
    put("line");
    paint();
  };

  on("pointerdown", (event) => {
    const one = email.find(event), grips = email.grips(event);
    // A finger scrolls, except at the handle
    if (email.locked || email.writes(event) || event.button || !one || !grips || (event.pointerType !== "mouse" && grips === true)) return;
    held = { ...one, x: event.clientX, y: event.clientY };
  });
  on("pointermove", (event) => {
    const { clientX: x, clientY: y } = event;
    if (!held) return;
    if (!email.held && Math.hypot(x - held.x, y - held.y) > 6) {
      email.held = held;
      document.documentElement.setPointerCapture(event.pointerId);
      paint();
    }
    if (email.held) aim(x, y, held);
  });
  on("pointerup", () => held && email.release(true));
  on("pointercancel", () => held && email.release());
  on("dragstart", (event) => event.preventDefault());
  // A kind from the palette: the page sees the hand, this frame knows the place.
  addEventListener("message", ({ source, data }) => {
    if (source !== parent || email.locked) return;
    if (data.over) aim(data.over.x, data.over.y, data.over);
    else if ("over" in data) email.release();
    if (!data.kind) return;
    if (drop) say("add", { kind: data.kind, ...drop });
    email.release();
  });
})();
