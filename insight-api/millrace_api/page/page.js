// The live page: asks the API for a range, draws it, and asks again when the stream says so.
import { ask, showPart } from "./api.js";
import { $, clock, element, iso, outside, show, showPlanes, when } from "./common.js";
import { drawChart } from "./chart.js";

const HOUR = 3600e3;
const DAY = 24 * HOUR;
const VIEWS = {
  "1h": { step: HOUR, widest: 7 * DAY, narrowest: 12 * HOUR },
  "1m": { step: 60e3, widest: 3 * HOUR, narrowest: HOUR },
};
const REFRESH_MS = 15e3; // without any event from the stream
const SOONEST_MS = 3e3; // with them
const SLOW_MS = 14e3; // for what costs more, or changes seldom: pages, dead letters, jobs, planes
const LISTEN_AGAIN_MS = 10e3; // after the stream was refused

const number = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const view = { size: null, from: 0, to: 0, following: true, extent: null, revision: null };

// -- Words

const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(count, 1)) / 3), units.length - 1);
  return `${(count / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}

// -- The API

const askRange = (path, from, to, more) => ask(path, { from: iso(from), to: iso(to), ...more });

/** Answers of one piece: none of before rows of the past were replaced beside one of after it. */
async function together(...asks) {
  const answers = await Promise.all(asks.map((one) => one()));
  const isOnePiece = answers.every(({ revision }) => revision === answers[0].revision);
  return isOnePiece ? answers : together(...asks);
}

// -- The range shown

/** Move to the end of the data, whenever that was: a replayed log of 2015 shows 2015. */
function follow() {
  const { step, widest, narrowest } = VIEWS[view.size];
  const data = view.extent?.[view.size];
  const last = data ? Date.parse(data.to) : Math.ceil(Date.now() / step) * step;
  const length = data ? last - Date.parse(data.from) : 0;
  view.to = last;
  view.from = last - Math.min(Math.max(length, narrowest), widest);
}

function pickSize() {
  const data = view.extent?.["1h"];
  return data && Date.parse(data.to) - Date.parse(data.from) <= 2 * HOUR ? "1m" : "1h";
}

function move(direction) {
  const length = view.to - view.from;
  view.from += direction * length;
  view.to += direction * length;
  view.following = false;
  refresh();
}

// -- Drawing

function showFigures(total) {
  const per = (view.to - view.from) / 60e3;
  $("requests").textContent = number.format(total.requests);
  $("requests-note").textContent = `${number.format(Math.round((10 * total.requests) / per) / 10)} a minute`;
  $("page-views").textContent = number.format(total.page_views);
  $("page-views-note").textContent = `${percent(total.page_views, total.requests)} of requests`;
  const { estimate, lower, upper } = total.unique_visitors;
  $("visitors").textContent = number.format(estimate);
  $("visitors-note").textContent = `between ${number.format(lower)} and ${number.format(upper)}`;
  $("bytes").textContent = bytes(total.bytes);
  $("bytes-note").textContent = total.requests ? `${bytes(total.bytes / total.requests)} a request` : "–";
}

function showStatus(total) {
  const present = Object.entries(total.status).filter(([, count]) => count);
  const swatch = (name, flex) => {
    const made = element("i", { className: `status s${name[0]}` });
    made.style.flex = flex;
    return made;
  };
  show($("status-bar"), ...present.map(([name, count]) => swatch(name, `${count}`)));
  show($("status-legend"),
    ...present.map(([name, count]) =>
      element("span", {}, swatch(name, ""), `${name}  ${number.format(count)} (${percent(count, total.requests)})`)));
}

function showPages(top) {
  const most = top.pages[0]?.page_views ?? 1;
  const error = top.error ? `, ± ${number.format(top.error)} views` : "";
  $("pages-note").textContent = top.distinct_pages ? `· ${top.pages.length} of ${number.format(top.distinct_pages)}${error}` : "";
  const line = ({ url, page_views: views }) => {
    const made = element("li", {}, element("span", {}, outside(url)), element("span", {}, number.format(views)));
    made.style.setProperty("--share", `${(100 * views) / most}%`);
    return made;
  };
  $("pages-none").hidden = top.pages.length > 0;
  show($("pages"), ...top.pages.map(line));
}

function showLetters(letters) {
  $("letters").textContent = number.format(letters.count);
  $("letters-note").textContent = "received in the last 24 hours";
  $("letters-figure").classList.toggle("alert", letters.count > 0);
  const listed = letters.dead_letters.map((letter) =>
    element("div", { className: "letter" },
      when(Date.parse(letter.received)), outside(letter.reason),
      element("code", { tabIndex: 0 }, outside(letter.preview))));
  show($("letter-list"), ...(letters.count ? listed : [element("p", { className: "quiet" }, "None. Every event could be read.")]));
}

// What a job does; of one that has failed since when, why, and the page that says what to do.
function doing({ state, trouble, failed_since: since, runbook }) {
  if (!since) return state ?? "–";
  const why = trouble === null ? [] : [": ", outside(trouble)]; // for operators
  const words = element("span", {}, `✕ ${state} since `, when(Date.parse(since)), ...why, " ");
  if (runbook) words.append(element("a", { href: runbook }, "Runbook"));
  return words;
}

function showJobs(progress) {
  const time = (text) => (text ? when(Date.parse(text)) : "–");
  const behind = ({ behind: found }) => {
    if (!found) return [];
    const level = found.level_in_seconds;
    return [" · behind since ", time(found.since), level === null ? ", and not catching up" : `, level in ${Math.ceil(level / 60)} min`];
  };
  const line = (job) => element("tr", { className: job.failed_since ? "alert" : "" },
    ...[[outside(job.job)], [doing(job)], [job.version], [`${job.epoch} · ${number.format(job.batch)}`],
      [time(job.max_event_time)], [time(job.watermark)], [compact.format(job.input_rows_per_second)],
      [ago(job.age_seconds), ...behind(job)]].map((shown) => element("td", {}, ...shown)));
  const none = element("tr", {}, element("td", { colSpan: 8 }, "No job has committed a batch yet."));
  show($("jobs"), ...(progress.jobs.length ? progress.jobs.map(line) : [none]));
}

function showRange(windows) {
  const provisional = windows.filter((window) => !window.final).length;
  show($("range"), when(view.from), " – ", when(view.to), " · ",
    provisional ? `${provisional} of ${windows.length} windows provisional` : `${windows.length} windows, all final`);
  for (const button of document.querySelectorAll("[data-size]")) {
    button.setAttribute("aria-pressed", button.dataset.size === view.size);
  }
  $("latest").disabled = view.following;
  $("later").disabled = view.following;
}

// -- Refreshing

/** Returns how long the API wants to be left alone: 0 unless it is busy. */
async function refresh() {
  try {
    await showPart($("chart"), refreshTraffic());
    await refreshSlowly();
    $("notice").hidden = true;
    return 0;
  } catch (error) {
    refreshPlanes(); // which say why
    $("notice").textContent = `What you see may be old. ${error.message}`;
    $("notice").hidden = false;
    return error.pauseMs ?? 0;
  }
}

async function refreshTraffic() {
  view.extent = await ask("/v1/extent");
  view.size ??= pickSize();
  if (view.following) follow();
  const { from, to, size } = view;
  const asks = [() => askRange("/v1/traffic", from, to, { window: size }), () => askRange("/v1/traffic/total", from, to)];
  let [traffic, total, top] = await together(...asks);
  // Pages are asked for more seldom: now, too, where they would be of another piece.
  if (traffic.revision !== (view.revision ?? traffic.revision)) [traffic, total, top] = await together(...asks, askPages);
  if (from !== view.from || size !== view.size) return; // the reader has moved on meanwhile
  view.revision = traffic.revision;
  if (top) showPages(top);
  showFigures(total);
  showStatus(total);
  showRange(traffic.windows);
  drawChart($("chart"), $("chart-words"), { from, to, step: VIEWS[size].step, windows: traffic.windows });
}

/** What costs more or changes seldom: at once for another range, or else now and then. */
const slow = { range: "", at: 0 };
async function refreshSlowly() {
  const range = hours().join();
  if (range === slow.range && Date.now() - slow.at < SLOW_MS) return;
  refreshPlanes();
  await Promise.all([
    showPart($("letter-list"), refreshLetters()),
    showPart($("chart"), refreshPagesAndJobs()),
  ]);
  Object.assign(slow, { range, at: Date.now() });
}

const refreshPlanes = () => showPart($("planes"), ask("/v1/status").then(showPlanes)).catch(() => {});

async function refreshLetters() {
  const nextMinute = Math.ceil(Date.now() / 60e3) * 60e3;
  showLetters(await askRange("/v1/dead-letters", nextMinute - DAY, nextMinute, { limit: 3 }));
}

const hours = () => [Math.floor(view.from / HOUR) * HOUR, Math.ceil(view.to / HOUR) * HOUR];
const askPages = () => askRange("/v1/pages/top", ...hours(), { k: 12 });

async function refreshPagesAndJobs() {
  const [top, progress] = await Promise.all([askPages(), ask("/v1/progress")]);
  if (top.revision === view.revision) showPages(top);
  else refreshSoon(); // with the rest
  showJobs(progress);
}

/** At most one refresh at a time and one in three seconds, however fast events come. */
let refreshing = false;
let wanted = false;
async function refreshSoon() {
  wanted = true;
  if (refreshing) return;
  refreshing = true;
  while (wanted) {
    wanted = false;
    const pauseMs = await refresh();
    await new Promise((done) => setTimeout(done, Math.max(SOONEST_MS, pauseMs)));
  }
  refreshing = false;
}

/** Follows the stream, if the key may: the browser doesn't tell why one was refused. */
async function listen() {
  try {
    const { scopes } = await ask("/v1/login");
    if (scopes.includes("insights")) openStream();
    else show($("live-text"), "needs a key with the scope insights");
  } catch {
    setTimeout(listen, LISTEN_AGAIN_MS);
  }
}

function openStream() {
  let source = "redis";
  const say = (state, text, beat = "") => {
    $("live-dot").className = `dot ${state} ${beat}`;
    show($("live-text"), text); // told aloud when it changes; the clock beside it isn't
  };
  const sayLive = (beat) => (source === "redis" ? say("up", "live", beat) : say("degraded", "live, from the store", beat));
  const stream = new EventSource("/v1/stream");
  stream.onopen = () => sayLive("");
  stream.onerror = () => {
    say("down", "reconnecting…");
    // The browser reconnects by itself, but not after it was refused.
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, LISTEN_AGAIN_MS);
  };
  stream.addEventListener("source", (event) => {
    source = event.data;
    sayLive("");
  });
  stream.addEventListener("resync", refreshSoon);
  stream.addEventListener("window", () => {
    sayLive("beat");
    show($("live-clock"), "· ", when(Date.now(), clock(Date.now(), true)));
    refreshSoon();
  });
}

for (const button of document.querySelectorAll("[data-size]")) {
  button.onclick = () => { view.size = button.dataset.size; view.following = true; refresh(); };
}
$("earlier").onclick = () => move(-1);
$("later").onclick = () => move(1);
$("latest").onclick = () => { view.following = true; refresh(); };
setInterval(refreshSoon, REFRESH_MS);
refreshSoon();
listen();
