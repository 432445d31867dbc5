// One panel's picture in plain SVG: lines or strips over time, with marks for what explains a gap.

import { clock, day, element, here, outside } from "./common.js";

const SVG = "http://www.w3.org/2000/svg";
const TOP = 16;
const LINES = 168; // px
const STRIP = 19;
const AXIS = 20;
const LEFT = 52;
const RIGHT = 44; // beside strips, for their share
const NEAR = 9; // px from the pointer to a mark
const MOST_IN_TIP = 8;
const COLOURS = 8;
const HEIGHTS = { up: 1, degraded: 0.6, down: 0.25 }; // of a strip: to be told apart without colours
const DAY = 86400;

const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** A value as people say it. */
export function say(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${number.format(100 * value)} %`;
  if (unit === "milliseconds") return say(value / 1e3, "seconds");
  if (unit === "bytes") return bytes(value);
  if (unit === "per_second") return `${compact.format(value)}/s`;
  return unit === "seconds" ? duration(value) : compact.format(value);
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), units.length - 1);
  return `${number.format(value / 1000 ** power)} ${units[power]}`;
}

function duration(seconds) {
  if (seconds === 0) return "0 s";
  if (Math.abs(seconds) < 1e-3) return `${number.format(1e6 * seconds)} µs`;
  if (Math.abs(seconds) < 1) return `${number.format(1e3 * seconds)} ms`;
  const [unit, length] = [["d", DAY], ["h", 3600], ["min", 60]].find(([, long]) => seconds >= 1.5 * long || seconds === long) ?? ["s", 1];
  return `${number.format(seconds / length)} ${unit}`;
}

export const colour = (index) => `var(--c${index % COLOURS})`;

export function node(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** All pictures show the moment under the pointer; it is in seconds, or null. */
const pictures = new Set();
let moment = null;

function pointAt(at) {
  moment = at;
  for (const picture of pictures) picture.drawCursor();
}

export class Picture {
  constructor(chart, panel) {
    this.chart = chart;
    this.panel = panel;
    this.data = null;
    this.marks = [];
    this.pointed = false;
    // What arrow keys come to, in words: a picture's own content is told to nobody who doesn't see it.
    this.words = element("p", { className: "hidden", ariaLive: "polite" });
    new ResizeObserver(() => this.draw()).observe(chart);
    chart.addEventListener("pointermove", (event) => this.#point(event.clientX - chart.getBoundingClientRect().left));
    chart.addEventListener("pointerleave", () => this.#leave());
    chart.addEventListener("blur", () => this.#leave());
    chart.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!steps || !this.data) return;
      event.preventDefault();
      this.pointed = true;
      this.#go((moment ?? this.data.end) + steps * this.data.step);
      this.words.textContent = this.tip.innerText;
    });
    pictures.add(this);
  }

  show(data, marks) {
    this.data = data;
    this.marks = marks.filter(({ at }) => at >= data.start && at <= data.end);
    this.draw();
  }

  /** Shows something else in the picture's place, which is no picture then. */
  clear(...content) {
    this.data = null;
    for (const name of ["role", "aria-label", "tabindex"]) this.chart.removeAttribute(name);
    this.chart.replaceChildren(...content);
  }

  #point(x) {
    if (!this.data) return;
    const { start, end, step } = this.data;
    this.pointed = true;
    this.#go(start + Math.round(((x - this.left) / this.width) * (end - start) / step) * step);
  }

  #go(at) {
    pointAt(Math.max(this.data.start, Math.min(at, this.data.end)));
  }

  #leave() {
    this.pointed = false;
    pointAt(null);
  }

  x = (at) => this.left + ((at - this.data.start) / (this.data.end - this.data.start)) * this.width;

  draw() {
    const { data, panel, chart } = this;
    if (!data || !chart.clientWidth) return;
    const strips = panel.kind === "strips";
    const labels = Math.min(172, chart.clientWidth * 0.34);
    this.left = strips ? labels : LEFT;
    this.width = chart.clientWidth - this.left - (strips ? RIGHT : 8);
    this.height = strips ? data.series.length * STRIP : LINES;
    const total = TOP + this.height + AXIS;
    this.svg = node("svg", { viewBox: `0 0 ${chart.clientWidth} ${total}`, height: total });
    this.#timeAxis();
    if (strips) this.#strips(); else this.#lines();
    this.#marks();
    this.cursor = node("line", { class: "cursor", y1: TOP - 4, y2: TOP + this.height, visibility: "hidden" });
    this.svg.append(this.cursor);
    this.tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    chart.replaceChildren(this.svg, this.tip);
    const latest = data.series.slice(0, MOST_IN_TIP).map(({ legend, values }) => `${legend} ${say(values.findLast((value) => value !== null), panel.unit)}`);
    chart.tabIndex = 0;
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", `${panel.title}: ${latest.join(", ")}. ${this.marks.length} events. Arrow keys read single moments.`);
    this.drawCursor();
  }

  #timeAxis() {
    const { start, end, step } = this.data;
    const perLabel = ((end - start) * 64) / this.width;
    const every = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY].find((candidate) => candidate >= perLabel) ?? 7 * DAY;
    for (let at = Math.ceil(start / every) * every; at <= end; at += every) {
      const x = this.x(at);
      const midnight = at % DAY === 0;
      this.svg.append(node("line", { class: midnight ? "day" : "gridline", "stroke-opacity": 0.5, x1: x, x2: x, y1: TOP, y2: TOP + this.height }));
      const anchor = x > this.left + this.width - 18 ? "end" : x < this.left + 18 ? "start" : "middle";
      this.svg.append(node("text", { x, y: TOP + this.height + 15, "text-anchor": anchor }, midnight && step > 60 ? day(at * 1e3) : clock(at * 1e3)));
    }
  }

  #lines() {
    const { data, panel } = this;
    const found = data.series.flatMap(({ values }) => values).filter((value) => value !== null);
    const y = this.#scale(panel.unit === "share" ? 1 : Math.max(...found));
    this.#gaps(TOP, this.height, (slot) => data.series.every(({ values }) => values[slot] === null));
    data.series.forEach(({ values }, index) => this.#line(values, y, colour(index)));
  }

  /** Round numbers up to the highest value, each with a line; returns value → y. */
  #scale(highest) {
    const { unit } = this.panel;
    const rough = (highest || 1) / 3;
    const power = 10 ** Math.floor(Math.log10(rough));
    const factors = unit === "seconds" && rough > 10 ? [60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 43200, DAY].filter((each) => each >= rough).map((each) => each / power) : [];
    const step = (factors[0] ?? [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough)) * power;
    const whole = unit === "count" ? Math.max(1, Math.ceil(step)) : step;
    const top = unit === "share" ? 1 : Math.ceil(highest / whole - 1e-9) * whole || whole;
    const y = (value) => TOP + this.height * (1 - Math.max(0, value) / top); // hosts' clocks differ a little
    for (let value = 0; value <= top * 1.001; value += unit === "share" ? 0.25 : whole) {
      this.svg.append(node("line", { class: "gridline", x1: this.left, x2: this.left + this.width, y1: y(value), y2: y(value) }));
      this.svg.append(node("text", { x: this.left - 6, y: y(value) + 4, "text-anchor": "end" }, say(value, unit)));
    }
    return y;
  }

  /** Through neighbouring values; where nobody told any there is a gap. */
  #line(values, y, stroke) {
    const { start, step } = this.data;
    let path = "";
    values.forEach((value, slot) => {
      if (value === null) return;
      const alone = (values[slot - 1] ?? null) === null && (values[slot + 1] ?? null) === null;
      const joined = (values[slot - 1] ?? null) !== null;
      path += `${joined ? "L" : "M"}${this.x(start + slot * step).toFixed(1)} ${y(value).toFixed(1)}${alone ? "h.1" : ""}`;
    });
    this.svg.append(node("path", { d: path, fill: "none", stroke, "stroke-width": 1.6, "stroke-linejoin": "round", "stroke-linecap": "round" }));
  }

  #gaps(top, height, isGap) {
    this.#runs((slot) => (isGap(slot) ? "gap" : null), top, height);
  }

  /** A rectangle for each run of slots that have the same look; none where there is none. */
  #runs(lookOf, top, height) {
    const { start, end, step } = this.data;
    const slots = (end - start) / step + 1;
    for (let from = 0, to; from < slots; from = to) {
      const look = lookOf(from);
      for (to = from + 1; to < slots && lookOf(to) === look; to += 1);
      if (look === null) continue;
      const [x, until] = [from - 0.5, to - 0.5].map((slot) => this.x(Math.max(start, Math.min(start + slot * step, end))));
      const part = height * (HEIGHTS[look] ?? 1);
      const place = { x, y: top + height - part, width: Math.max(until - x, 1), height: part };
      this.svg.append(node("rect", { ...place, ...(look === "gap" ? { class: "gap" } : { fill: `var(--${look})` }) }));
    }
  }

  #strips() {
    const looks = (value) => (value === null ? "gap" : value > 0.999 ? "up" : value > 0 ? "degraded" : "down");
    this.data.series.forEach(({ legend, values }, index) => {
      const top = TOP + index * STRIP;
      const name = node("text", { class: "row", x: this.left - 8, y: top + 12, "text-anchor": "end" }, isolated(shortened(legend, this.left / 6.6)));
      name.append(node("title", {}, legend));
      this.svg.append(name);
      this.#runs((slot) => looks(values[slot]), top + 2, STRIP - 5);
      const known = values.filter((value) => value !== null);
      const mean = known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
      this.svg.append(node("text", { class: "share", x: this.left + this.width + 6, y: top + 12 }, mean === 1 ? "100 %" : mean === null ? "–" : `${(Math.floor(mean * 1e3) / 10).toFixed(1)} %`));
    });
  }

  #marks() {
    for (const { at, kind } of this.marks) {
      const x = this.x(at);
      this.svg.append(node("line", { x1: x, x2: x, y1: TOP - 6, y2: TOP + this.height, stroke: `var(--${kind})`, "stroke-width": 1.2, "stroke-dasharray": "3 3", "stroke-opacity": 0.85 }));
      this.svg.append(node("circle", { cx: x, cy: TOP - 9, r: 4, fill: `var(--${kind})` }));
    }
  }

  drawCursor() {
    const { data } = this;
    if (!data || !this.cursor) return;
    const shown = moment !== null && moment >= data.start && moment <= data.end;
    this.cursor.setAttribute("visibility", shown ? "visible" : "hidden");
    this.tip.hidden = !(shown && this.pointed);
    if (!shown) return;
    const x = this.x(moment);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    if (this.pointed) this.#describe(x);
  }

  /** The values of the moment, the highest first, and the events beside it. */
  #describe(x) {
    const { data, panel } = this;
    const slot = Math.round((moment - data.start) / data.step);
    const told = data.series.map(({ legend, values }, index) => ({ legend, value: values[slot], index })).filter(({ value }) => value !== null);
    const order = panel.kind === "strips" ? (a, b) => a.value - b.value : (a, b) => b.value - a.value;
    const list = element("dl");
    for (const { legend, value, index } of told.sort(order).slice(0, MOST_IN_TIP)) {
      const swatch = panel.kind === "strips" ? "" : element("i", { style: `background:${colour(index)}` });
      list.append(element("dt", {}, swatch, outside(legend)), element("dd", {}, say(value, panel.unit)));
    }
    const near = this.marks.filter(({ at }) => Math.abs(this.x(at) - x) < NEAR).slice(-6);
    const at = moment * 1e3;
    this.tip.replaceChildren(
      element("b", {}, `${day(at)}, ${clock(at, data.step < 60)}`), ...(here(at) ? [element("small", {}, here(at))] : []),
      told.length ? list : "nobody told any figure",
      ...near.map(({ at, kind, text }) => element("div", { className: "mark", style: `--kind:var(--${kind})` }, element("i"), element("span", {}, `${clock(at * 1e3, true)} `, outside(text)))));
    const left = x + this.tip.offsetWidth + 20 > this.chart.clientWidth ? x - this.tip.offsetWidth - 10 : x + 10;
    this.tip.style.left = `${Math.max(0, left)}px`;
  }
}

/** As `bdi`, which SVG doesn't have. */
const isolated = (text) => `\u2068${text}\u2069`;

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, Math.max(3, Math.floor(most) - 1))}…` : text;
}
