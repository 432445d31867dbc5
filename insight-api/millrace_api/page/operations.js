// The operations page: asks the API for each panel of its configuration, what happened, and which alerts fire.
import { ask } from "./api.js";
import { $, clock, day, element, outside, show, showPlanes, when } from "./common.js";
import { Picture, colour, say } from "./picture.js";

const REFRESH_MS = 15e3;
const STALE_SECONDS = 90; // six scrapes
const CLOCK_SECONDS = 60;
const AT_ONCE = 3; // the API asks Prometheus two questions at a time
const MOST_HAPPENED = 40;
const FIRST_RANGE = "1h";

const panels = new Map(); // name → its card, picture and last answer
const hidden = new Set(); // kinds of events that aren't drawn
let kinds = [];
let range = null;
let happened = { events: [] };
let wanted = 0; // the last refresh: older ones show nothing any more

/** The API has times in ISO 8601; pictures count seconds since 1970. */
const seconds = (text) => Date.parse(text) / 1e3;
const pictured = ({ start, end, step_seconds: step, ...more }) => ({ ...more, start: seconds(start), end: seconds(end), step });
const timed = ({ events, ...more }) => ({ ...more, events: events.map((event) => ({ ...event, at: seconds(event.at) })) });

// -- What there is

function build(overview) {
  kinds = overview.marks;
  range = overview.ranges.includes(location.hash.slice(1)) ? location.hash.slice(1) : FIRST_RANGE;
  $("ranges").replaceChildren(...overview.ranges.map((name) => element("button", { textContent: name, onclick: () => choose(name) })));
  $("kinds").replaceChildren(...kinds.map(({ kind, why }) =>
    element("button", { title: why, value: kind, style: `--kind:var(--${kind})`, onclick: () => toggle(kind) }, element("i"), kind)));
  $("groups").replaceChildren(...overview.groups.map((group) =>
    element("section", { className: "group" }, element("h2", {}, group.title),
      element("div", { className: "grid panels" }, ...group.panels.map(cardOf)))));
  sayChoices();
}

function cardOf(panel) {
  const chart = element("div", { className: "chart" }, element("p", { className: "quiet waits" }, "asking…"));
  const legend = element("div", { className: "legend" });
  const card = element("div", { className: "card panel" },
    element("h3", {}, panel.title), element("p", { className: "why" }, panel.why), chart, legend);
  const picture = new Picture(chart, panel);
  card.append(picture.words);
  panels.set(panel.name, { panel, card, chart, legend, picture, data: null });
  return card;
}

function choose(name) {
  range = name;
  history.replaceState(null, "", `#${name}`);
  for (const { card } of panels.values()) card.classList.add("old");
  sayChoices();
  refresh();
}

function toggle(kind) {
  if (!hidden.delete(kind)) hidden.add(kind);
  sayChoices();
  for (const shown of panels.values()) draw(shown);
}

function sayChoices() {
  for (const button of $("ranges").children) button.setAttribute("aria-pressed", button.textContent === range);
  for (const button of $("kinds").children) button.setAttribute("aria-pressed", !hidden.has(button.value));
}

// -- Drawing

function draw({ panel, legend, picture, data }) {
  if (!data) return;
  const told = data.series.some(({ values }) => values.some((value) => value !== null));
  if (!told) {
    picture.clear(element("p", { className: "quiet" }, `Nobody told a figure in the last ${range}. Choose a longer range; if there should be some, `,
      element("a", { href: "/runbooks/target-down" }, "see what gives none"), "."));
    legend.replaceChildren();
    return;
  }
  picture.show(data, happened.events.filter(({ kind }) => !hidden.has(kind)));
  if (panel.kind === "strips") return;
  legend.replaceChildren(...data.series.map(({ legend: name, values }, index) =>
    element("span", {}, element("i", { style: `background:${colour(index)}` }), outside(name), " ",
      element("b", {}, say(values.findLast((value) => value !== null), panel.unit)))));
}

const SIGNS = { critical: "✕", warning: "!", info: "i" };

function showAlerts({ alerts }) {
  const badge = ({ state, severity }) => (state === "firing"
    ? element("span", { className: `badge ${severity}` }, `${SIGNS[severity] ?? "?"} ${severity}`)
    : element("span", { className: "badge pending" }, "about to fire"));
  const line = (alert) => element("div", { className: `fires ${alert.state}` },
    badge(alert), element("b", {}, outside(alert.name)),
    element("span", {}, outside(alert.summary), " ", element("small", {}, "since ", when(Date.parse(alert.since)))),
    alert.runbook ? element("a", { href: alert.runbook }, "Runbook") : "");
  show($("alerts"), ...(alerts.length ? alerts.map(line) : [element("p", { className: "quiet" }, "None fires, and none is about to.")]));
}

function showHappened({ events, left_out: leftOut }) {
  if (!events.length) {
    show($("happened"), element("p", { className: "quiet" }, `Nothing in the last ${range}: ${kinds.map(({ kind }) => kind).join(", ")} would stand here.`));
    return;
  }
  const rows = events.slice(0, MOST_HAPPENED).map(({ at, kind, text, runbook }) =>
    element("tr", {}, element("td", {}, when(at * 1e3, `${day(at * 1e3)}, ${clock(at * 1e3, true)}`)),
      element("td", {}, element("i", { style: `--kind:var(--${kind})` }), kind),
      element("td", {}, outside(text), ...(runbook ? [" · ", element("a", { href: runbook }, "Runbook")] : []))));
  const more = events.length + leftOut - rows.length;
  const note = more > 0 ? [element("p", { className: "quiet" }, `and ${more} older ones`)] : [];
  const table = element("table", {}, element("tbody", {}, ...rows));
  show($("happened"), element("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: "What happened" }, table), ...note);
}

// -- Whether what is shown is new

/** The state is told aloud when it changes; up to when there are figures isn't. */
function sayState(state, text, until = null) {
  $("fresh-dot").className = `dot ${state}`;
  show($("fresh-text"), text);
  show($("fresh-until"), ...(until === null ? [] : ["until ", when(until * 1e3, clock(until * 1e3, true))]));
}

function complain(text) {
  $("notice-text").textContent = text;
  $("notice").hidden = !text;
}

/** The last moment of which any panel has a figure; null if none has. */
function newest() {
  const found = [...panels.values()].filter(({ data }) => data).flatMap(({ data }) =>
    data.series.map(({ values }) => data.start + data.step * values.findLastIndex((value) => value !== null)).filter((at) => at >= data.start));
  return found.length ? Math.max(...found) : null;
}

function judge(failure) {
  if (failure) {
    for (const quiet of document.querySelectorAll(".waits")) quiet.textContent = "Not known while Prometheus doesn't answer; it comes by itself once it does.";
    sayState("down", "no figures");
    complain(`${newest() ? "What you see is old. " : ""}${failure.message}`);
    return;
  }
  const [{ data }] = panels.values();
  const last = newest();
  const age = last === null ? Infinity : data.end - last;
  const off = Math.round((Date.now() / 1e3 - data.end) / 60);
  if (age > Math.max(STALE_SECONDS, 2 * data.step)) {
    sayState("degraded", last === null ? "no figures" : "old figures", last);
    complain("Prometheus answers, but has nothing new. Its disk may be full, or it can reach nobody.");
  } else if (Math.abs(Date.now() / 1e3 - data.end) > CLOCK_SECONDS + data.step) {
    sayState("degraded", "figures", last);
    complain(`The edge host's clock and yours are ${Math.abs(off)} min apart: what it tells as now is not. See to the one that is wrong.`);
  } else {
    sayState("up", "figures", last);
    complain("");
  }
}

// -- Refreshing

async function refresh() {
  const mine = (wanted += 1);
  const asked = { range };
  const shown = (show) => (answer) => mine === wanted && show(answer);
  ask("/v1/status").then(showPlanes, () => {});
  let failure = null;
  const failed = (error) => { failure = error; };
  await Promise.all([
    ask("/v1/operations/alerts").then(shown(showAlerts)).catch(failed),
    ask("/v1/operations/events", asked).then(timed).then(shown((answer) => { happened = answer; showHappened(answer); })).catch(failed),
  ]);
  const waiting = [...panels.values()];
  const one = async () => {
    for (let next = waiting.shift(); next && !failure && mine === wanted; next = waiting.shift()) {
      const panel = next;
      await ask(`/v1/operations/panels/${panel.panel.name}`, asked).then(pictured).then(shown((data) => {
        panel.data = data;
        panel.card.classList.remove("old");
        draw(panel);
      })).catch(failed);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  if (mine === wanted) judge(failure);
}

async function begin() {
  try {
    build(await ask("/v1/operations"));
    await refresh();
    setInterval(() => document.hidden || refresh(), REFRESH_MS);
  } catch (error) {
    if (error.scope) {
      sayState("down", "not with this key");
      complain(error.message);
      return;
    }
    sayState("down", "no answer");
    complain(`The API doesn't answer: ${error.message}`);
    setTimeout(begin, REFRESH_MS);
  }
}

begin();
