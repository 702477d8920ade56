// Ctrl-K, or ⌘K: opens a pasted job id, an endpoint or a page, and does what a button
// of the page does.

/** @typedef {{ text: string, hint: string, href?: string, button?: HTMLButtonElement }} Command */

/** @returns {Command[]} */
function commands() {
  /** @type {Command[]} */
  const all = [];
  for (const link of document.querySelectorAll(".top nav a, .tabs a, th[scope=row] a[data-open]")) {
    const a = /** @type {HTMLAnchorElement} */ (link);
    const hint = a.closest(".top") ? "page" : a.closest(".tabs") ? "endpoint" : "open";
    if (!all.some((c) => c.href === a.href)) all.push({ text: (a.textContent ?? "").trim(), hint, href: a.href });
  }
  for (const node of document.querySelectorAll("main form[method=post] button, .menu form button")) {
    const button = /** @type {HTMLButtonElement} */ (node);
    if (button.closest("td") || (!button.closest(".menu") && !button.checkVisibility())) continue;
    all.push({ text: button.getAttribute("aria-label") ?? (button.textContent ?? "").trim(), hint: "do", button });
  }
  return all;
}

/** @param {string} text @param {Command[]} known @param {string[]} tabs @returns {Command[]} */
function found(text, known, tabs) {
  const wanted = text.trim();
  const list = known.filter((c) => (c.href || wanted) && c.text.toLowerCase().includes(wanted.toLowerCase())); // Enter alone presses nothing
  if (/^[\w-]{8,}$/.test(wanted)) list.push({ text: wanted, hint: "job", href: "/ui/j/" + encodeURIComponent(wanted) });
  if (/^[\w-]{1,64}$/.test(wanted)) list.push({ text: wanted, hint: "endpoint", href: "/ui/e/" + encodeURIComponent(wanted) });
  const [, tab, id] = /^(\w+)\s+([\w-]{1,64})$/.exec(wanted) ?? [];
  if (tabs.includes(tab)) list.push({ text: tab + " of " + id, hint: "endpoint", href: "/ui/e/" + encodeURIComponent(id) + "/" + tab });
  return list.slice(0, 12);
}

export function startPalette() {
  const button = document.getElementById("palette-open");
  const tabs = (button?.dataset.tabs ?? "").split(" ");
  const dialog = document.createElement("dialog");
  dialog.id = "palette";
  dialog.setAttribute("aria-label", "Go to");
  dialog.innerHTML = '<input type="text" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-label="A job id, an endpoint, a page or a command" placeholder="A job id, an endpoint, a page or a command" autocomplete="off" spellcheck="false"><ul id="palette-list" role="listbox" aria-label="Matches"></ul>';
  document.body.append(dialog);
  const input = /** @type {HTMLInputElement} */ (dialog.querySelector("input"));
  const list = /** @type {HTMLUListElement} */ (dialog.querySelector("ul"));
  let at = 0;
  /** @type {Command[]} */
  let shown = [];
  /** @param {Command} c */
  const choose = (c) => {
    if (c.href) return location.assign(c.href);
    dialog.close();
    c.button?.click();
  };
  const show = () => {
    shown = found(input.value, commands(), tabs);
    at = Math.min(at, Math.max(0, shown.length - 1));
    list.replaceChildren(...shown.map((c, i) => {
      const item = document.createElement("li");
      item.id = "palette-" + i;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(i === at));
      const hint = document.createElement("small");
      hint.textContent = c.hint;
      item.append(hint, c.text);
      item.addEventListener("click", () => choose(c));
      return item;
    }));
    input.setAttribute("aria-activedescendant", shown.length ? "palette-" + at : "");
  };
  input.addEventListener("input", () => { at = 0; show(); });
  input.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && shown[at]) { e.preventDefault(); choose(shown[at]); }
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
  if (button) { button.hidden = false; button.addEventListener("click", open); }
}
