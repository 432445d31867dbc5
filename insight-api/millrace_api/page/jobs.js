// The jobs that are one file each: a panel for each, made from what the job says of its rows.
const ROWS = 8;
const POLL_MS = 15000;
const panels = document.getElementById("declared");

const cell = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });

function row(tag, values) {
  const line = document.createElement("tr");
  line.append(...values.map((value) => cell(tag, value)));
  return line;
}

function panel(job, rows) {
  const card = Object.assign(document.createElement("section"), { className: "card" });
  const columns = [...Object.keys(job.key), ...Object.keys(job.values)];
  const table = document.createElement("table");
  const head = document.createElement("thead");
  head.append(row("th", ["window", ...columns]));
  const body = document.createElement("tbody");
  for (const one of rows) {
    const shown = columns.map((name) => one[name] ?? "–");
    body.append(row("td", [one.window_start.replace("T", " ").replace("Z", ""), ...shown]));
  }
  table.append(head, body);
  const scroll = Object.assign(document.createElement("div"), { className: "scroll" });
  scroll.append(rows.length ? table : cell("p", "No rows in the last day of its events."));
  const title = cell("h2", `${job.job} · `);
  title.append(cell("span", job.summary));
  card.append(title, scroll);
  return card;
}

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// The newest rows: a day up to the newest event that the job has seen.
async function newest(job, progress) {
  const last = progress.jobs.find((one) => one.job === job.job)?.max_event_time;
  if (!last) return [];
  const end = new Date(new Date(last).getTime() + job.window_seconds * 1000);
  const from = new Date(end.getTime() - 86400000);
  const range = `from=${from.toISOString()}&to=${end.toISOString()}&limit=${ROWS}`;
  return (await ask(`${job.rows}?${range}`)).rows;
}

async function refresh() {
  try {
    const [{ jobs }, progress] = await Promise.all([ask("/v1/jobs"), ask("/v1/progress")]);
    const rows = await Promise.all(jobs.map((job) => newest(job, progress)));
    panels.replaceChildren(...jobs.map((job, index) => panel(job, rows[index])));
  } catch (error) {
    console.warn(error); // the page itself says what is down
  }
}

refresh();
setInterval(() => document.hidden || refresh(), POLL_MS);
