// Says below a chart what is under the pointer.

/** @param {string} unit @param {number} value @returns {string} */
function text(unit, value) {
  if (unit !== "ms") return value.toLocaleString("en").replaceAll(",", "\u202f");
  return value < 1000 ? `${value} ms` : value < 120000 ? `${(value / 1000).toFixed(1)} s` : `${Math.round(value / 60000)} min`;
}

/** @param {SVGSVGElement} chart @param {PointerEvent} e */
function point(chart, e) {
  const box = chart.getBoundingClientRect();
  const { first, step, left, width } = chart.dataset;
  const x = (e.clientX - box.left) / box.width * chart.viewBox.baseVal.width - Number(left);
  const lines = [...chart.querySelectorAll("[data-values]")].map((line) => /** @type {SVGElement} */ (line).dataset);
  const length = lines[0]?.values?.split(",").length ?? 0;
  const i = Math.max(0, Math.min(length - 1, Math.floor(x / Number(width) * length)));
  const tip = chart.parentElement?.querySelector(".chart-tip");
  if (!tip || !length) return;
  const at = new Date(Number(first) + i * Number(step)).toISOString().replace("T", " ").slice(0, 16);
  tip.textContent = at + " UTC · " + lines.map((d) => `${d.name} ${text(d.unit ?? "", Number(d.values?.split(",")[i]))}`).join(" · ");
  chart.querySelector(".cursor")?.setAttribute("transform", `translate(${Number(left) + (i + .5) * Number(width) / length} 0)`);
}

export function startCharts() {
  document.addEventListener("pointermove", (e) => {
    const chart = /** @type {Element} */ (e.target).closest?.("svg.chart");
    if (chart) point(/** @type {SVGSVGElement} */ (chart), e);
  });
}
