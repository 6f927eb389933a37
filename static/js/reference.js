// Draws the document that /docs/api/document.js left.
document.querySelector("rapi-doc").loadSpec(globalThis.published);
