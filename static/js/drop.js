/* A kind that is dragged from the palette over the canvas. */
(() => {
  "use strict";
  const stage = document.getElementById("stage"), canvas = document.getElementById("canvas");
  if (!canvas) return;
  const tell = (detail) => document.dispatchEvent(new CustomEvent("canvas:tell", { detail }));

  // Over the frame the page holds what is dragged from the palette: not every browser takes it into a frame without origin.
  let held = null;
  const over = (name, hear) => stage.addEventListener(name, (event) => { if (held) hear(event); });
  document.addEventListener("dragstart", ({ target }) => {
    held = target.closest?.("[data-palette] [data-kind]") || null;
    stage.removeAttribute("data-hover");
    stage.toggleAttribute("data-drag", !!held);
  }, true);
  over("dragover", (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    event.preventDefault();
    stage.setAttribute("data-hover", "");
    tell({ over: { x: event.clientX - left, y: event.clientY - top, may: "inner" in held.dataset } });
  });
  over("dragleave", ({ relatedTarget }) => { if (!stage.contains(relatedTarget)) stage.removeAttribute("data-hover"), tell({ over: null }); });
  over("drop", (event) => { event.preventDefault(); tell({ kind: held.dataset.kind }); });
  document.addEventListener("dragend", () => { held = null; stage.removeAttribute("data-drag"); tell({ over: null }); });
})();
