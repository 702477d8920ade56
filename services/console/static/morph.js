// Merges new markup into the page: what is the same stays, with its focus, selection,
// checked boxes and open details.

/** Makes an element like another one. @param {Element} old @param {Element} next */
export function morph(old, next) {
  if (old.tagName !== next.tagName) { old.replaceWith(next); return; }
  if (old.isEqualNode(next) || old.hasAttribute("data-keep")) return;
  attributes(old, next);
  if (old.tagName === "TEXTAREA") return; // somebody may be writing
  children(old, next);
}

/** What people change themselves is not taken back. @type {Record<string, string[]>} */
const theirs = { INPUT: ["value", "checked"], DETAILS: ["open"], DIALOG: ["open"], OPTION: ["selected"] };

/** @param {Element} old @param {Element} next */
function attributes(old, next) {
  const kept = theirs[old.tagName] ?? [];
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !kept.includes(name) && name !== "aria-selected" && !(name === "class" && old.classList.contains("at"))) old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) === value || kept.includes(name)) continue;
    const at = name === "class" && old.classList.contains("at");
    old.setAttribute(name, value);
    if (at) old.classList.add("at"); // the row that the keys are at
  }
}

/** @param {Node} node @returns {string} */
function keyOf(node) {
  return node instanceof Element ? node.id || node.getAttribute("data-key") || "" : "";
}

/** @param {Element} old @param {Element} next */
function children(old, next) {
  /** @type {Map<string, Element>} */
  const keyed = new Map();
  for (const child of old.children) {
    const key = keyOf(child);
    if (key) keyed.set(key, child);
  }
  let at = old.firstChild;
  for (const want of [...next.childNodes]) {
    const key = keyOf(want);
    const known = key ? keyed.get(key) : undefined;
    if (known && known !== at) { old.insertBefore(known, at); at = known; }
    if (known && known === at) {
      at = known.nextSibling;
      morph(known, /** @type {Element} */ (want));
      continue;
    }
    if (key || !at || keyOf(at) || at.nodeType !== want.nodeType || at.nodeName !== want.nodeName) {
      old.insertBefore(want, at);
      continue;
    }
    const same = at;
    at = at.nextSibling;
    if (same instanceof Element) morph(same, /** @type {Element} */ (want));
    else if (same.nodeValue !== want.nodeValue) same.nodeValue = want.nodeValue;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}
