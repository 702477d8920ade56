// What every page has: times that are relative, fragments that change, dialogs, keys.
import { morph } from "./morph.js";
import { startPalette } from "./palette.js";
import { startKeys } from "./keys.js";
import { startCharts } from "./chart.js";
import { retryDelay, startPage } from "./page.js";

/** Shows the times below a node relatively. @param {ParentNode} root */
export function showTimes(root) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[datetime]")) {
    const text = relative(Date.parse(/** @type {HTMLTimeElement} */ (time).dateTime), now);
    if (time.textContent !== text) time.textContent = text;
  }
}

/** @param {number} at @param {number} now @returns {string} */
function relative(at, now) {
  const seconds = Math.round(Math.abs(now - at) / 1000);
  if (seconds < 2) return "now";
  const [n, unit] = seconds < 90 ? [seconds, "s"] : seconds < 5400 ? [Math.round(seconds / 60), "min"]
    : seconds < 172800 ? [Math.round(seconds / 3600), "h"] : [Math.round(seconds / 86400), "d"];
  return at > now ? `in ${n} ${unit}` : `${n} ${unit} ago`;
}

/** Puts a fragment in the place of the element with its id. @param {string} id @param {string} html */
function replace(id, html) {
  const old = document.getElementById(id);
  if (!old) return;
  const made = document.createElement("template");
  made.innerHTML = html;
  const next = made.content.firstElementChild;
  if (!next) return;
  showTimes(made.content);
  morph(old, next);
  document.dispatchEvent(new CustomEvent("fragment", { detail: id }));
}

function startLive() {
  const topic = document.body.dataset.live;
  const state = document.getElementById("live-state");
  if (!topic || !state) return;
  let source = /** @type {EventSource | null} */ (null);
  let silence = 0;
  const show = (/** @type {string} */ text) => {
    state.hidden = false;
    state.textContent = text;
    state.classList.toggle("off", text !== "live");
  };
  // The server says something every 10 s. A connection may end without a word, and it may stand still.
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => { close(); show("reconnecting"); open(); }, 25_000);
  };
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource("/ui/live?topics=" + encodeURIComponent(topic));
    heard();
    source.addEventListener("open", () => { heard(); show("live"); });
    source.addEventListener("here", heard);
    source.addEventListener("late", (e) => { heard(); show(/** @type {MessageEvent} */ (e).data === "true" ? "not up to date" : "live"); });
    source.addEventListener("fragment", (e) => {
      heard();
      const change = JSON.parse(/** @type {MessageEvent} */ (e).data);
      replace(change.id, change.html);
    });
    source.addEventListener("signed-out", () => location.reload());
    source.addEventListener("error", () => {
      show("reconnecting");
      if (source && source.readyState === EventSource.CLOSED) { source = null; setTimeout(open, retryDelay); }
    });
  };
  const close = () => { clearTimeout(silence); source?.close(); source = null; };
  // A page that nobody sees costs nothing.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  open();
}

/** Shows that something goes on that takes long; the next page takes its place. */
function showBusy() {
  const busy = document.createElement("progress");
  busy.id = "busy";
  busy.setAttribute("aria-label", "Working");
  const late = setTimeout(() => document.body.append(busy), 400);
  addEventListener("pageshow", () => { clearTimeout(late); busy.remove(); }, { once: true });
}

/** A form is sent once, and a bar shows that it takes long. */
function startForms() {
  /** What is on its way; a live update may put another element in the place of its form. @type {Set<string>} */
  const sent = new Set();
  addEventListener("pageshow", () => sent.clear());
  document.addEventListener("submit", (e) => {
    const form = /** @type {HTMLFormElement} */ (e.target);
    const what = form.action + " " + [...new FormData(form)].join();
    if (e.defaultPrevented || sent.has(what)) { e.preventDefault(); return; }
    showBusy();
    if (form.method === "post") sent.add(what);
  });
}

showTimes(document);
setInterval(() => showTimes(document), 5000);
startForms();
startPalette();
startKeys();
startCharts();
startPage();
startLive();
