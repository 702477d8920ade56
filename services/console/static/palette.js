// Ctrl-K, or ⌘K: opens a pasted job id, an endpoint, or a page.

/** @typedef {{ text: string, hint: string, href: string }} Command */

/** @returns {Command[]} */
function commands() {
  /** @type {Command[]} */
  const all = [];
  for (const link of document.querySelectorAll(".top nav a, .tabs a, th[scope=row] a[data-open]")) {
    const a = /** @type {HTMLAnchorElement} */ (link);
    const hint = a.closest(".top") ? "page" : a.closest(".tabs") ? "endpoint" : "open";
    if (!all.some((c) => c.href === a.href)) all.push({ text: (a.textContent ?? "").trim(), hint, href: a.href });
  }
  return all;
}

/** @param {string} text @param {Command[]} known @returns {Command[]} */
function found(text, known) {
  const wanted = text.trim().toLowerCase();
  const list = known.filter((c) => c.text.toLowerCase().includes(wanted));
  if (/^[\w-]{8,}$/.test(wanted)) list.push({ text: text.trim(), hint: "job", href: "/ui/j/" + encodeURIComponent(text.trim()) });
  if (/^[\w-]{1,64}$/.test(wanted)) list.push({ text: text.trim(), hint: "endpoint", href: "/ui/e/" + encodeURIComponent(text.trim()) });
  return list.slice(0, 12);
}

export function startPalette() {
  const dialog = document.createElement("dialog");
  dialog.id = "palette";
  dialog.setAttribute("aria-label", "Go to");
  dialog.innerHTML = '<input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-label="A job id, an endpoint or a page" placeholder="A job id, an endpoint or a page" autocomplete="off" spellcheck="false"><ul id="palette-list" role="listbox" aria-label="Matches"></ul>';
  document.body.append(dialog);
  const input = /** @type {HTMLInputElement} */ (dialog.querySelector("input"));
  const list = /** @type {HTMLUListElement} */ (dialog.querySelector("ul"));
  let at = 0;
  /** @type {Command[]} */
  let shown = [];
  const show = () => {
    shown = found(input.value, commands());
    at = Math.min(at, Math.max(0, shown.length - 1));
    list.replaceChildren(...shown.map((c, i) => {
      const item = document.createElement("li");
      item.id = "palette-" + i;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(i === at));
      const hint = document.createElement("small");
      hint.textContent = c.hint;
      item.append(hint, c.text);
      item.addEventListener("click", () => location.assign(c.href));
      return item;
    }));
    input.setAttribute("aria-activedescendant", shown.length ? "palette-" + at : "");
  };
  input.addEventListener("input", () => { at = 0; show(); });
  input.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && shown[at]) { e.preventDefault(); location.assign(shown[at].href); }
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      e.preventDefault();
      at = (at + (e.key === "ArrowDown" ? 1 : shown.length - 1)) % Math.max(1, shown.length);
      show();
    }
  });
  const open = () => { if (!dialog.open) { input.value = ""; at = 0; show(); dialog.showModal(); input.focus(); } };
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });
  document.addEventListener("keydown", (e) => {
    if ((e.metaKey || e.ctrlKey) && e.key.toLowerCase() === "k") { e.preventDefault(); open(); }
  });
  const button = document.getElementById("palette-open");
  if (button) { button.hidden = false; button.addEventListener("click", open); }
}
