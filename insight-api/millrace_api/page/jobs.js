// The jobs that are one file each: a panel for each, made from what the job says of its rows.
import { ask } from "./api.js";
import { element, outside, show, when } from "./common.js";

const ROWS = 8;
const MINUTES = 10;
const POLL_MS = 15000;
const MINUTE_MS = 60000;
const DAY_MS = 86400000;
const TIMES = ["start", "end"];
const panels = document.getElementById("declared");

const row = (tag, values) => element("tr", {}, ...values.map((value) => element(tag, {}, value)));
const table = (head, lines) => element("table", {},
  element("thead", {}, row("th", head.map(outside))), element("tbody", {}, ...lines.map((line) => row("td", line))));

function panel(job, ...parts) {
  const title = element("h2", {}, outside(job.job), " · ", element("span", {}, outside(job.summary)));
  const scroll = element("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: `Rows of ${job.job}` }, ...parts);
  return element("section", { className: "card" }, title, scroll);
}

// A computed share has 17 digits; a reader needs four after the point.
const value = (found) => outside(typeof found === "number" ? Math.round(found * 1e4) / 1e4 : found ?? "–");
const time = (text) => when(Date.parse(text), text.replace("T", " ").replace(/(\.\d+)?Z/, ""));
const note = (...parts) => element("p", {}, ...parts);

// The newest rows: a day up to the newest event that the job has seen.
async function rowsOf(job, progress) {
  const last = progress.jobs.find((one) => one.job === job.job)?.max_event_time;
  const end = new Date(new Date(last ?? 0).getTime() + job.window_seconds * 1000);
  const from = new Date(end.getTime() - DAY_MS);
  const range = { from: from.toISOString(), to: end.toISOString(), limit: ROWS };
  const { rows } = last ? await ask(job.rows, range) : { rows: [] };
  if (!rows.length) return panel(job, note("No rows in the last day of its events."));
  const kinds = { ...job.key, ...job.values };
  const columns = Object.keys(kinds);
  const told = (one, name) => (kinds[name] === "timestamp" && one[name] ? time(one[name]) : value(one[name]));
  const lines = rows.map((one) => [time(one.window_start), ...columns.map((name) => told(one, name))]);
  return panel(job, table(["window", ...columns], lines));
}

// Of slots: the sessions that are open, and those that closed in the last minutes.
async function sessionsOf(job) {
  const live = await ask(`${job.rows}/live`, { limit: ROWS });
  const end = Math.floor(new Date(live.as_of).getTime() / MINUTE_MS + 1) * MINUTE_MS;
  const [from, to] = [end - MINUTES * MINUTE_MS, end].map((ms) => new Date(ms).toISOString());
  const { minutes, revision } = await ask(`${job.rows}/closed`, { from, to });
  if (revision !== live.revision) return sessionsOf(job); // rows were replaced meanwhile: both anew
  const merged = Object.entries(job.sessions.merges);
  const columns = merged.filter(([, merge]) => !["start", "end"].includes(merge)).map(([name]) => name);
  const names = [...Object.keys(job.key), "start", "end", ...columns];
  const open = live.sessions.map((one) => names.map((name) => TIMES.includes(name) ? time(one[name]) : value(one[name])));
  const closed = minutes.reverse().map((one) => [time(one.start), one.closed, one.bounced,
    one.mean_pages.toFixed(1), Math.round(one.mean_seconds)]);
  return panel(job,
    note(`${live.open} open at `, time(live.as_of)), table(names, open),
    note(`Closed in the last ${MINUTES} minutes`),
    table(["minute", "closed", "bounced", "pages (mean)", "seconds (mean)"], closed));
}

// A job that can't be shown says why, and leaves the other panels alone.
async function shown(job, progress) {
  try {
    return await (job.sessions ? sessionsOf(job) : rowsOf(job, progress));
  } catch (error) {
    return panel(job, note(error.message));
  }
}

async function refresh() {
  try {
    const [{ jobs, unusable }, progress] = await Promise.all([ask("/v1/jobs"), ask("/v1/progress")]);
    show(panels, ...await Promise.all(jobs.map((job) => shown(job, progress))),
      ...unusable.map((job) => panel({ job: job.job, summary: "has no rows here" }, note(outside(job.problem)))));
  } catch (error) {
    console.warn(error); // the page itself says what is down
  }
}

refresh();
setInterval(() => document.hidden || refresh(), POLL_MS);
