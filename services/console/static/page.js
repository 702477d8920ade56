// What only some pages have: live output, the playground, selected rows, copy buttons.

const maxShown = 200_000;
/** How long after a refusal the server is asked for a stream again, in ms. */
export const retryDelay = 3000;

/** The text of a chunk, as far as it is one. @param {any} chunk @returns {string} */
function textOf(chunk) {
  const out = chunk && typeof chunk === "object" && "output" in chunk ? chunk.output : chunk;
  if (typeof out === "string") {
    // Lines of an OpenAI stream come as they are.
    const lines = out.split("\n").filter((line) => line.startsWith("data:"));
    if (!lines.length) return out;
    return lines.map((line) => { try { return textOf(JSON.parse(line.slice(5))); } catch { return ""; } }).join("");
  }
  const choice = out?.choices?.[0];
  if (choice) return choice.delta?.content ?? choice.text ?? choice.message?.content ?? "";
  for (const name of ["token", "text", "content"]) if (typeof out?.[name] === "string") return out[name];
  return JSON.stringify(out) + "\n";
}

/**
 * How fast chunks came, kept in this window so that a reload goes on with it.
 * @typedef {{ last: number, chunks: number, from: number, until: number, recent: number[] }} Pace
 */

/** @param {string} url @returns {Pace} */
function paceOf(url) {
  try {
    const kept = JSON.parse(sessionStorage.getItem("flightline pace " + url) ?? "null");
    if (kept) return kept;
  } catch { /* as if nothing were kept */ }
  return { last: 0, chunks: 0, from: 0, until: 0, recent: [] };
}

/** @param {number} chunks @param {number} seconds @returns {string} */
const rateOf = (chunks, seconds) => chunks > 2 && seconds > 0 ? `, ${(chunks / Math.max(.25, seconds)).toFixed(1)} tokens/s` : "";

/** Shows what a job puts out, from the beginning, as it comes. @param {HTMLElement} shown */
function follow(shown) {
  const url = shown.dataset.stream;
  const rate = document.getElementById("live-rate");
  if (!url || shown.dataset.following) return;
  shown.dataset.following = "yes";
  const source = new EventSource(url);
  const pace = paceOf(url);
  const resumed = pace.last > 0;
  let chunks = 0, opened = Date.now();
  const keep = () => {
    try { sessionStorage.setItem("flightline pace " + url, JSON.stringify(pace)); } catch { /* full: then it is not kept */ }
  };
  source.addEventListener("open", () => { opened = Date.now(); });
  source.addEventListener("message", (e) => {
    chunks++;
    const now = Date.now(), id = Number(e.lastEventId);
    if (id > pace.last && (resumed || now - opened > 700)) { // what was there before comes at once
      pace.from ||= now;
      pace.until = now;
      pace.chunks++;
      pace.recent.push(now);
    }
    pace.last = Math.max(pace.last, id);
    pace.recent = pace.recent.filter((t) => now - t < 3000);
    const atEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 8;
    shown.append(textOf(JSON.parse(e.data)));
    if (shown.childNodes.length > 500) shown.textContent = (shown.textContent ?? "").slice(-maxShown);
    if (atEnd) shown.scrollTop = shown.scrollHeight;
    if (rate) rate.textContent = `${chunks} chunks` + rateOf(pace.recent.length, (now - pace.recent[0]) / 1000);
  });
  source.addEventListener("signed-out", () => location.reload());
  const leave = () => { keep(); source.close(); };
  const again = () => {
    removeEventListener("pagehide", leave);
    if (!shown.isConnected) return;
    keep();
    shown.textContent = "";
    delete shown.dataset.following;
    follow(shown);
  };
  source.addEventListener("error", () => { // a browser asks again by itself, but not after a refusal
    if (source.readyState === EventSource.CLOSED) setTimeout(again, retryDelay);
  });
  source.addEventListener("end", (e) => {
    leave();
    if (!rate) return;
    const { error } = JSON.parse(/** @type {MessageEvent} */ (e).data);
    if (error) rate.textContent = error;
    else rate.textContent = chunks ? `${chunks} chunks` + rateOf(pace.chunks, (pace.until - pace.from) / 1000) : "nothing was streamed";
  });
  addEventListener("pagehide", leave);
}

function startStreams() {
  for (const shown of document.querySelectorAll("[data-stream]")) {
    const details = shown.closest("details");
    if (!details || details.open) follow(/** @type {HTMLElement} */ (shown));
    details?.addEventListener("toggle", () => details.open && follow(/** @type {HTMLElement} */ (shown)));
  }
}

/** @param {HTMLElement} button @param {() => string} text */
function copies(button, text) {
  if (!navigator.clipboard) return; // a page that is not on loopback and without TLS
  button.hidden = false;
  const word = button.textContent;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = word; }, 1500);
  });
}

/** The rows that are selected are counted, and all of them at once with shift. */
function startSelection() {
  const form = document.getElementById("many");
  const count = document.getElementById("selected");
  if (!form || !count) return;
  let last = /** @type {HTMLInputElement | null} */ (null);
  const boxes = () => [...form.querySelectorAll("input[name=id]")].map((b) => /** @type {HTMLInputElement} */ (b));
  const show = () => {
    const n = boxes().filter((b) => b.checked).length;
    count.textContent = n ? `${n} selected:` : "Select jobs, then";
  };
  form.addEventListener("click", (e) => {
    const box = /** @type {HTMLInputElement} */ (e.target);
    if (box.name !== "id") return;
    const all = boxes();
    if (e.shiftKey && last && all.includes(last)) {
      const [a, b] = [all.indexOf(last), all.indexOf(box)].sort((x, y) => x - y);
      for (const other of all.slice(a, b + 1)) other.checked = box.checked;
    }
    last = box;
    show();
  });
  document.addEventListener("fragment", show);
  form.addEventListener("submit", (e) => {
    const all = /** @type {HTMLInputElement | null} */ (form.querySelector("input[name=all]"));
    if (boxes().some((b) => b.checked) || all?.checked) return;
    // Without a selection a key acts on the row that it is at.
    const at = /** @type {HTMLInputElement | null} */ (form.querySelector("tr.at input[name=id]"));
    if (at) at.checked = true;
    else { e.preventDefault(); count.textContent = "No job is selected."; }
  });
}

/** What a program would send for the form. @param {HTMLFormElement} form @returns {any} */
function sent(form) {
  const value = (/** @type {string} */ name) => String(new FormData(form).get(name) ?? "");
  if (form.dataset.mode !== "chat") return JSON.parse(value("input"));
  const messages = [{ role: "user", content: value("message") || "hello" }];
  if (value("system")) messages.unshift({ role: "system", content: value("system") });
  return { model: value("model") || "MODEL", messages };
}

/** The playground keeps the last inputs of each endpoint in this browser. */
function startTry() {
  const form = /** @type {HTMLFormElement | null} */ (document.getElementById("try-form"));
  if (!form) return;
  const key = `flightline inputs ${form.dataset.endpoint} ${form.dataset.mode}`;
  /** @type {Record<string, string>[]} */
  let kept = [];
  try { kept = JSON.parse(localStorage.getItem(key) ?? "[]"); } catch { /* as if there were none */ }
  const fields = [...form.querySelectorAll("textarea, input[id]")].map((f) => /** @type {HTMLInputElement} */ (f));
  const fill = (/** @type {Record<string, string>} */ values) => {
    for (const field of fields) if (typeof values[field.name] === "string") field.value = values[field.name];
    code();
  };
  const snippets = [...document.querySelectorAll("[data-snippet]")].map((s) => ({ node: s, text: s.textContent ?? "" }));
  const example = form.dataset.example ?? "";
  const code = () => {
    let compact = example;
    try { compact = JSON.stringify(sent(form)); } catch { return; }
    for (const s of snippets) {
      s.node.textContent = s.text.replace(JSON.stringify(example), () => JSON.stringify(compact))
        .replace(example, () => s.text.startsWith("curl") ? compact.replaceAll("'", "'\\''") : compact);
    }
  };
  if (kept.length) fill(kept[0]);
  form.addEventListener("input", code);
  form.addEventListener("submit", () => {
    const now = Object.fromEntries(fields.map((f) => [f.name, f.value]));
    kept = [now, ...kept.filter((k) => JSON.stringify(k) !== JSON.stringify(now))].slice(0, 10);
    try { localStorage.setItem(key, JSON.stringify(kept)); } catch { /* full: then it is not kept */ }
  });
  const last = document.getElementById("try-last");
  const select = last?.querySelector("select");
  if (!last || !select || kept.length < 2) return;
  last.hidden = false;
  select.append(...kept.map((k, i) => new Option((k.input ?? k.message ?? "").replace(/\s+/g, " ").slice(0, 60), String(i))));
  select.addEventListener("change", () => fill(kept[Number(select.value)]));
}

/** Starts what the page needs. */
export function startPage() {
  startStreams();
  startSelection();
  startTry();
  for (const node of document.querySelectorAll("[data-copy]")) {
    const button = /** @type {HTMLElement} */ (node);
    copies(button, () => button.dataset.copy ?? "");
  }
  for (const node of document.querySelectorAll("[data-copy-next]")) {
    copies(/** @type {HTMLElement} */ (node), () => node.parentElement?.nextElementSibling?.textContent ?? "");
  }
  document.addEventListener("click", (e) => {
    const link = /** @type {HTMLAnchorElement | null} */ (/** @type {Element} */ (e.target).closest?.("a[data-show]"));
    if (!link) return;
    e.preventDefault();
    const made = document.createElement(link.dataset.show === "audio" ? "audio" : "img");
    made.src = link.href;
    if (made instanceof HTMLImageElement) made.alt = link.textContent ?? "";
    else made.controls = true;
    made.setAttribute("data-keep", "");
    link.replaceWith(made);
  });
}
