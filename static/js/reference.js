// Draws the operation that the address names (`#post-/v1/my/campaigns`), from its document of /docs/api/document.js.
{
  const reference = document.querySelector("rapi-doc");
  let shown;
  const load = () => {
    const anchor = decodeURIComponent(location.hash.slice(1));
    if (anchor === shown) return;
    shown = anchor;
    const script = document.createElement("script");
    script.src = `/docs/api/document.js?operation=${encodeURIComponent(anchor)}`;
    script.addEventListener("load", () => {
      script.remove();
      if (shown === anchor) reference.loadSpec(globalThis.published);
    });
    document.head.append(script);
  };
  // The renderer changes the address by these functions when something is chosen in it, for which there is no event.
  for (const name of ["pushState", "replaceState"]) {
    const change = history[name].bind(history);
    history[name] = (...values) => {
      change(...values);
      load();
    };
  }
  for (const name of ["hashchange", "popstate"]) addEventListener(name, load);
  load();
}
