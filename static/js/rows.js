/* The rows of a filter: reloaded when they change, moved by dragging and by keys. */
(() => {
  "use strict";
  const up = (from, selector) => from.closest?.(selector);
  const ask = (filter) => filter?.isConnected && filter.dispatchEvent(new CustomEvent("rows:ask"));

  // Choices ask at once, what is typed asks when the hand rests.
  let waiting = 0;
  document.addEventListener("input", ({ target }) => {
    const filter = up(target, "[data-filter]");
    if (!filter) return;
    clearTimeout(waiting);
    waiting = setTimeout(ask, target.matches("select, [type=checkbox], [type=date]") ? 0 : 400, filter);
  });

  // After a button of the rows the focus goes to what it was about, and the form around hears of it.
  let pressed = null;
  document.addEventListener("click", ({ target }) => {
    const button = up(target, "[data-filter] button[name$='.act']");
    if (!button) return;
    const rule = up(button, "[data-rule]"), list = rule?.parentElement;
    clearTimeout(waiting);
    up(button, "[popover]")?.hidePopover();
    pressed = { verb: button.value.split(":")[0], id: rule?.id, list: up(button, "li")?.id, at: list ? [...list.children].indexOf(rule) : 0 };
  }, true);
  const say = (filter, rule) => {
    const all = [...rule.parentElement.children];
    filter.querySelector("[data-moved]").textContent = t("Condition %(position)s of %(total)s", { position: all.indexOf(rule) + 1, total: all.length });
  };
  document.addEventListener("htmx:after:swap", ({ detail: { ctx } }) => {
    const filter = pressed && document.getElementById(ctx.target?.id);
    if (!filter?.matches("[data-filter]")) return;
    const { verb, id, list, at } = pressed, rule = id && document.getElementById(id);
    pressed = null;
    const blank = (root) => [...root.querySelectorAll(".find.none")].pop();
    if (verb === "add") (blank((list && document.getElementById(list)) || filter) || filter.querySelector(".more button")).focus();
    if (verb === "remove") {
      const rules = filter.querySelectorAll(":scope > .rules > li");
      (rules[Math.min(at, rules.length - 1)]?.querySelector(".find") || filter.querySelector(":scope > .more button")).focus();
    }
    if (rule && (verb === "up" || verb === "down")) {
      rule.querySelector("[popovertarget]").focus();
      say(filter, rule);
    }
    if (rule && verb === "moved") say(filter, rule); // the new rows came with nothing said
    filter.dispatchEvent(new CustomEvent("rows:change", { bubbles: true }));
  });

  // Rules are moved among their siblings: by the grip with arrows, from anywhere in a rule with Alt and arrows, by hand.
  const settle = (rule) => {
    const filter = up(rule, "[data-filter]");
    say(filter, rule);
    pressed = { verb: "moved", id: rule.id };
    filter.dispatchEvent(new CustomEvent("rows:change", { bubbles: true }));
    ask(filter);
  };
  document.addEventListener("keydown", (event) => {
    const rule = up(event.target, "[data-rule]"), step = { ArrowUp: "previousElementSibling", ArrowDown: "nextElementSibling" }[event.key];
    if (!rule || !step || !(event.altKey || event.target.matches("[data-grip]"))) return;
    event.preventDefault();
    const other = rule[step], focus = event.target;
    if (!other) return;
    step[0] === "p" ? other.before(rule) : other.after(rule);
    focus.focus();
    settle(rule);
  });
  document.addEventListener("pointerdown", (event) => {
    const grip = up(event.target, "[data-grip]"), rule = grip && up(grip, "[data-rule]");
    if (!rule || event.button) return;
    const before = rule.nextElementSibling;
    grip.setPointerCapture(event.pointerId);
    rule.classList.add("held");
    // The neighbours move: what is taken out of the page loses the hand that holds it. A tall one changes places once
    // the hand is so far inside that it would not jump back.
    const move = ({ clientY: y }) => {
      for (;;) {
        const { previousElementSibling: above, nextElementSibling: below } = rule, own = rule.offsetHeight;
        const high = above?.getBoundingClientRect(), low = below?.getBoundingClientRect();
        if (high && y < high.top + Math.min(high.height, own)) rule.after(above);
        else if (low && y > low.bottom - Math.min(low.height, own)) rule.before(below);
        else return;
      }
    };
    const end = () => {
      grip.removeEventListener("pointermove", move);
      rule.classList.remove("held");
      if (rule.nextElementSibling !== before) settle(rule);
    };
    grip.addEventListener("pointermove", move);
    grip.addEventListener("lostpointercapture", end, { once: true });
  });
})();
