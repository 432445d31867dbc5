// What both pages have: elements, times, and the planes of the cluster.

export const $ = (id) => document.getElementById(id);

/** An element with properties and children; text is never parsed as HTML. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** A text that came from outside: whatever its direction, it leaves what stands around it alone. */
export const outside = (text) => element("bdi", {}, String(text));

/** Replaces what a place shows only if that changed: readers aloud tell what is new, and nobody loses his place. */
export function show(place, ...children) {
  const made = place.cloneNode(false);
  made.append(...children);
  if (!made.isEqualNode(place)) place.replaceChildren(...made.childNodes);
}

// -- Times: UTC, and beside it what the reader's own clock said

const UTC = { timeZone: "UTC" };
const DAY = { day: "numeric", month: "short" };
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };

export const iso = (ms) => new Date(ms).toISOString().replace(".000Z", "Z");
const text = (ms, options) => new Date(ms).toLocaleString("en-GB", options);

export const clock = (ms, seconds = false) => iso(ms).slice(11, seconds ? 19 : 16);
export const day = (ms, year = false) => text(ms, { ...DAY, ...UTC, ...(year ? { year: "numeric" } : {}) });
export const moment = (ms) => `${day(ms, true)}, ${clock(ms)}`;

/** That moment where the reader is; empty where it is UTC there, too. */
export function here(ms) {
  if (!new Date(ms).getTimezoneOffset()) return "";
  const sameDay = text(ms, DAY) === text(ms, { ...DAY, ...UTC });
  return `${text(ms, sameDay ? CLOCK : { ...DAY, ...CLOCK })} here`;
}

/** A moment in UTC, with the reader's own time in small letters. */
export function when(ms, words = moment(ms)) {
  const local = here(ms);
  return element("time", { dateTime: iso(ms) }, words, ...(local ? [" ", element("small", {}, local)] : []));
}

// -- State: by a sign and a word, and by colour for those who see it

export const dot = (state) => element("span", { className: `dot ${state}`, ariaHidden: "true" });

export function showPlanes(status) {
  $("cluster").textContent = status.cluster;
  show($("planes"), ...status.planes.map(({ name, system, state, detail }) =>
    element("div", { className: "card plane" }, dot(state),
      element("b", {}, `${name} `, element("span", {}, `· ${system}`)),
      element("small", {}, `${state}: `, outside(detail)))));
}
