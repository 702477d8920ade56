// j and k move between rows, enter opens one, x selects it, r retries and c cancels what
// is selected, or the job of the page; ? shows this.

const help = [["j, k", "next and previous row"], ["Enter", "open the row"], ["x", "select the row"], ["r", "retry"], ["c", "cancel"],
  ["Ctrl K", "go to a job, an endpoint or a page"], ["?", "this list"]];

/** @returns {HTMLElement[]} */
const rows = () => [...document.querySelectorAll("[data-row]")].map((row) => /** @type {HTMLElement} */ (row));

/** @param {number} by */
function move(by) {
  const all = rows();
  const now = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.max(0, Math.min(all.length - 1, now + by))];
  if (!next) return;
  for (const row of all) row.classList.toggle("at", row === next);
  next.scrollIntoView({ block: "nearest" });
  /** @type {HTMLElement | null} */ (next.querySelector("a[data-open]"))?.focus();
}

/** Presses the button that has a key's letter. @param {string} key @returns {boolean} */
function press(key) {
  const button = /** @type {HTMLButtonElement | null} */ (document.querySelector(`[data-press="${key}"]:not(:disabled)`));
  button?.click();
  return Boolean(button);
}

function showHelp() {
  let dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("keys"));
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.id = "keys";
    dialog.setAttribute("aria-label", "Keys");
    const pad = document.createElement("div");
    pad.className = "pad";
    const list = document.createElement("dl");
    list.className = "keys";
    for (const [key, text] of help) {
      const term = document.createElement("dt"), kbd = document.createElement("kbd"), what = document.createElement("dd");
      kbd.textContent = key;
      term.append(kbd);
      what.textContent = text;
      list.append(term, what);
    }
    const close = document.createElement("button");
    close.textContent = "Close";
    close.addEventListener("click", () => dialog?.close());
    pad.append(list, close);
    dialog.append(pad);
    document.body.append(dialog);
  }
  if (!dialog.open) dialog.showModal();
}

export function startKeys() {
  document.addEventListener("keydown", (e) => {
    const on = /** @type {HTMLElement} */ (e.target);
    if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || on.closest("input:not([type=checkbox]), textarea, select, dialog[open]")) return;
    const row = rows().find((r) => r.classList.contains("at"));
    switch (e.key) {
      case "j": move(1); break;
      case "k": move(-1); break;
      case "x": /** @type {HTMLElement | null | undefined} */ (row?.querySelector("input[type=checkbox]"))?.click(); break;
      case "r": case "c": if (!press(e.key)) return; break;
      case "?": showHelp(); break;
      case "Enter":
        if (!row || on.closest("a, button, summary, input")) return;
        /** @type {HTMLElement | null} */ (row.querySelector("a[data-open]"))?.click();
        break;
      default: return;
    }
    e.preventDefault();
  });
}
