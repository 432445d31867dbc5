// The traffic chart: requests and page views as bars, unique visitors as a line beneath, in plain SVG.

import { element, here } from "./common.js";

const HOUR = 3600e3;
const BARS = { top: 14, height: 220 };
const LINE = { top: 276, height: 62 };
const HEIGHT = 344;
const LEFT = 46;
const number = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const SVG = "http://www.w3.org/2000/svg";

let drawn = null; // [chart, words, data]: drawn again when the width changes
let selected = null; // index of the slot under the pointer or the arrow keys

export function drawChart(chart, words, data) {
  const first = drawn === null;
  drawn = [chart, words, data];
  if (first) listen(chart);
  draw();
}

function listen(chart) {
  new ResizeObserver(draw).observe(chart);
  chart.addEventListener("pointermove", (event) => {
    const { from, to, step } = drawn[2];
    const x = event.clientX - chart.getBoundingClientRect().left - LEFT;
    select(Math.floor((x / (chart.clientWidth - LEFT)) * ((to - from) / step)));
  });
  chart.addEventListener("pointerleave", () => select(null));
  chart.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    select((selected ?? 0) + steps[event.key]);
  });
}

function select(slot) {
  const { from, to, step } = drawn[2];
  const last = (to - from) / step - 1;
  selected = slot === null ? null : Math.max(0, Math.min(slot, last));
  draw();
}

function draw() {
  const [chart, words, data] = drawn;
  const width = chart.clientWidth;
  if (!width) return; // not laid out yet: it is drawn again once it is
  const slots = (data.to - data.from) / data.step;
  const slotWidth = (width - LEFT) / slots;
  const bySlot = new Map(data.windows.map((w) => [(Date.parse(w.start) - data.from) / data.step, w]));
  const x = (slot) => LEFT + slot * slotWidth;

  const svg = node("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT });
  svg.append(stripes());
  timeAxis(svg, data, x);
  const bars = scale(svg, BARS, Math.max(1, ...data.windows.map((w) => w.requests)), width, "per window", 4);
  const line = scale(svg, LINE, Math.max(1, ...data.windows.map((w) => w.unique_visitors.estimate)), width, "unique visitors", 2);
  for (const [slot, window] of bySlot) drawBar(svg, window, x(slot), slotWidth, bars);
  drawLine(svg, bySlot, (slot) => x(slot + 0.5), line);
  if (selected !== null && selected < slots) {
    const middle = x(selected + 0.5);
    svg.append(node("line", { class: "cursor", x1: middle, x2: middle, y1: BARS.top, y2: LINE.top + LINE.height }));
  }
  chart.replaceChildren(svg);
  describe(chart, words, data, bySlot, x);
}

function node(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function stripes() {
  const pattern = node("pattern", { id: "stripes", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(node("rect", { width: 2, height: 5, fill: "var(--water)" }));
  const definitions = node("defs", {});
  definitions.append(pattern);
  return definitions;
}

/** Round numbers for at most `count` lines up to the highest value; returns value → y. */
function scale(svg, area, highest, width, title, count) {
  const rough = highest / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) * power);
  const top = Math.ceil(highest / step) * step;
  const y = (value) => area.top + area.height * (1 - value / top);
  for (let value = 0; value <= top; value += step) {
    svg.append(node("line", { class: "gridline", x1: LEFT, x2: width, y1: y(value), y2: y(value) }));
    svg.append(node("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, compact.format(value)));
  }
  svg.append(node("text", { class: "title", x: LEFT, y: area.top - 6 }, title));
  return y;
}

function timeAxis(svg, { from, to }, x, width = x((to - from) / drawn[2].step)) {
  const perLabel = ((to - from) * 72) / (width - LEFT);
  const step = [60e3, 5 * 60e3, 10 * 60e3, 30 * 60e3, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 48 * HOUR]
    .find((candidate) => candidate >= perLabel) ?? 168 * HOUR;
  for (let time = Math.ceil(from / step) * step; time < to; time += step) {
    const at = x((time - from) / drawn[2].step);
    const midnight = time % (24 * HOUR) === 0;
    const label = midnight
      ? new Date(time).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", timeZone: "UTC" })
      : new Date(time).toISOString().slice(11, 16);
    if (midnight) svg.append(node("line", { class: "day", x1: at, x2: at, y1: BARS.top, y2: LINE.top + LINE.height }));
    const anchor = at > width - 30 ? "end" : at < LEFT + 20 ? "start" : "middle";
    svg.append(node("text", { x: at, y: BARS.top + BARS.height + 18, "text-anchor": anchor }, label));
  }
}

function drawBar(svg, window, left, slotWidth, y) {
  const gap = slotWidth > 6 ? 1.5 : 0.4;
  const place = { x: left + gap, width: Math.max(slotWidth - 2 * gap, 0.8), rx: Math.min(2.5, slotWidth / 4) };
  const bar = (value, look) => svg.append(node("rect", { ...place, y: y(value), height: y(0) - y(value), ...look }));
  if (window.final) {
    bar(window.requests, { fill: "var(--water-soft)", stroke: "var(--water)", "stroke-width": 0.8 });
    bar(window.page_views, { fill: "var(--water)" });
  } else {
    bar(window.requests, { fill: "var(--water-soft)", "fill-opacity": 0.45, stroke: "var(--water)", "stroke-dasharray": "3 2", "stroke-width": 0.8 });
    bar(window.page_views, { fill: "url(#stripes)" });
  }
}

/** One line through neighbouring windows; a gap in the data is a gap in the line. */
function drawLine(svg, bySlot, x, y) {
  let path = "";
  let previous = null;
  for (const [slot, window] of bySlot) {
    path += `${previous === slot - 1 ? "L" : "M"}${x(slot).toFixed(1)} ${y(window.unique_visitors.estimate).toFixed(1)}`;
    previous = slot;
  }
  svg.append(node("path", { d: path, fill: "none", stroke: "var(--visitors)", "stroke-width": 1.8, "stroke-linejoin": "round", "stroke-linecap": "round" }));
}

/** The tip beside the selected window, and the same in words for those who don't see it. */
function describe(chart, words, data, bySlot, x) {
  const total = data.windows.reduce((sum, window) => sum + window.requests, 0);
  chart.setAttribute("aria-label", `Traffic chart, ${number.format(total)} requests. Arrow keys read single windows.`);
  if (selected === null) return;
  const start = data.from + selected * data.step;
  const window = bySlot.get(selected);
  const time = `${new Date(start).toISOString().slice(0, 16).replace("T", " ")} – ${new Date(start + data.step).toISOString().slice(11, 16)}`;
  const rows = window
    ? [["Requests", window.requests], ["Page views", window.page_views], ["Unique visitors", window.unique_visitors.estimate],
       ["Bytes", window.bytes], ["Client errors", window.status["4xx"]], ["Server errors", window.status["5xx"]]]
    : [["Requests", 0]];
  const state = window && (window.final ? "final" : "provisional");
  words.textContent = [time, here(start), ...rows.map(([name, value]) => `${name} ${number.format(value)}`), state].filter(Boolean).join(", ");

  const tip = element("div", { className: "tip" }, element("b", {}, time),
    ...(here(start) ? [element("small", {}, here(start))] : []),
    element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, number.format(value))])),
    ...(state ? [element("span", { className: `badge ${state}` }, state)] : []));
  chart.append(tip);
  const middle = x(selected + 0.5);
  tip.style.left = `${middle + tip.offsetWidth + 24 > chart.clientWidth ? middle - tip.offsetWidth - 12 : middle + 12}px`;
}
