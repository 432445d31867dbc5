// The jobs that are one file each: a panel for each, made from what the job says of its rows.
const ROWS = 8;
const MINUTES = 10;
const POLL_MS = 15000;
const MINUTE_MS = 60000;
const DAY_MS = 86400000;
const TIMES = ["start", "end"];
const panels = document.getElementById("declared");

const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });

function row(tag, values) {
  const line = document.createElement("tr");
  line.append(...values.map((value) => cell(tag, value)));
  return line;
}

function table(head, lines) {
  const made = document.createElement("table");
  const top = document.createElement("thead");
  top.append(row("th", head));
  const body = document.createElement("tbody");
  body.append(...lines.map((line) => row("td", line)));
  made.append(top, body);
  return made;
}

function panel(job, ...parts) {
  const card = Object.assign(document.createElement("section"), { className: "card" });
  const scroll = Object.assign(document.createElement("div"), { className: "scroll" });
  scroll.append(...parts);
  const title = cell("h2", `${job.job} · `);
  title.append(cell("span", job.summary));
  card.append(title, scroll);
  return card;
}

// A computed share has 17 digits; a reader needs four after the point.
const value = (found) => typeof found === "number" ? Math.round(found * 1e4) / 1e4 : found ?? "–";
const time = (text) => text.replace("T", " ").replace(/(\.\d+)?Z/, "");

async function ask(path) {
  const answer = await fetch(path);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.detail);
  return content;
}

// The newest rows: a day up to the newest event that the job has seen.
async function rowsOf(job, progress) {
  const last = progress.jobs.find((one) => one.job === job.job)?.max_event_time;
  const end = new Date(new Date(last ?? 0).getTime() + job.window_seconds * 1000);
  const from = new Date(end.getTime() - DAY_MS);
  const range = `from=${from.toISOString()}&to=${end.toISOString()}&limit=${ROWS}`;
  const { rows } = last ? await ask(`${job.rows}?${range}`) : { rows: [] };
  if (!rows.length) return panel(job, cell("p", "No rows in the last day of its events."));
  const columns = [...Object.keys(job.key), ...Object.keys(job.values)];
  const lines = rows.map((one) => [time(one.window_start), ...columns.map((name) => value(one[name]))]);
  return panel(job, table(["window", ...columns], lines));
}

// Of slots: the sessions that are open, and those that closed in the last minutes.
async function sessionsOf(job) {
  const live = await ask(`${job.rows}/live?limit=${ROWS}`);
  const end = Math.floor(new Date(live.as_of).getTime() / MINUTE_MS + 1) * MINUTE_MS;
  const [from, to] = [end - MINUTES * MINUTE_MS, end].map((ms) => new Date(ms).toISOString());
  const { minutes } = await ask(`${job.rows}/closed?from=${from}&to=${to}`);
  const merged = Object.entries(job.sessions.merges);
  const columns = merged.filter(([, merge]) => !["start", "end"].includes(merge)).map(([name]) => name);
  const names = [...Object.keys(job.key), "start", "end", ...columns];
  const open = live.sessions.map((one) => names.map((name) => TIMES.includes(name) ? time(one[name]) : value(one[name])));
  const closed = minutes.reverse().map((one) => [time(one.start), one.closed, one.bounced,
    one.mean_pages.toFixed(1), Math.round(one.mean_seconds)]);
  return panel(job,
    cell("p", `${live.open} open at ${time(live.as_of)}`), table(names, open),
    cell("p", `Closed in the last ${MINUTES} minutes`),
    table(["minute", "closed", "bounced", "pages (mean)", "seconds (mean)"], closed));
}

// A job that can't be shown says why, and leaves the other panels alone.
async function shown(job, progress) {
  try {
    return await (job.sessions ? sessionsOf(job) : rowsOf(job, progress));
  } catch (error) {
    return panel(job, cell("p", error.message));
  }
}

async function refresh() {
  try {
    const [{ jobs }, progress] = await Promise.all([ask("/v1/jobs"), ask("/v1/progress")]);
    panels.replaceChildren(...await Promise.all(jobs.map((job) => shown(job, progress))));
  } catch (error) {
    console.warn(error); // the page itself says what is down
  }
}

refresh();
setInterval(() => document.hidden || refresh(), POLL_MS);
