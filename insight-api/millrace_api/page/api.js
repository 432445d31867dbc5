// Questions to the API, and the key that it wants of who has none.
import { element, outside, show } from "./common.js";

const LOGIN = "/v1/login";
const refused = new Map(); // path → the error: who logs in with another key begins anew
let waiting = null; // for a key; nothing more is asked until there is one

/** Throws an error with the API's own words, how long it wants to be left alone, and the scope that the key lacks. */
export async function ask(path, parameters = {}) {
  if (waiting) return waiting;
  if (refused.has(path)) throw refused.get(path);
  const response = await fetch(`${path}?${new URLSearchParams(parameters)}`);
  const answer = await response.json();
  if (response.ok) return answer;
  if (response.status === 401) return (waiting ??= wantKey());
  const pauseMs = 1e3 * Number(response.headers.get("Retry-After") ?? 0);
  const error = Object.assign(new Error(answer.detail), { pauseMs, scope: answer.scope });
  if (error.scope) refused.set(path, error);
  throw error;
}

/** Shows a part of a page; or says in its place which scope the key lacks. Throws what else goes wrong. */
export async function showPart(place, part) {
  try {
    await part;
  } catch (error) {
    if (!error.scope) throw error;
    show(place, element("p", { className: "quiet" }, `Needs a key with the scope ${error.scope}.`));
  }
}

/** A form above all that the page shows; its promise never ends, as the page begins anew. */
function wantKey() {
  const said = element("p", { id: "key-said", role: "alert" });
  const key = element("input", { id: "key", type: "password", autocomplete: "off", spellcheck: false, required: true });
  key.setAttribute("aria-describedby", "key-said");
  const form = element("form", { className: "card key" },
    element("h2", {}, "Who reads here needs a key"),
    element("label", { htmlFor: "key" }, "Key"), key, element("button", {}, "Log in"), said);
  form.onsubmit = async (event) => {
    event.preventDefault();
    said.textContent = "";
    said.textContent = await logIn(key.value.trim());
  };
  document.querySelector("main").prepend(form);
  key.focus();
  return new Promise(() => {});
}

/** Begins the page anew, or returns why it can't. */
async function logIn(key) {
  try {
    const response = await fetch(LOGIN, { method: "POST", headers: { Authorization: `Bearer ${key}` } });
    if (response.status === 401) return "This key isn't known, or it has ended.";
    if (!response.ok) return (await response.json()).detail;
    location.reload();
    return "";
  } catch (error) {
    return `This key can't be sent: ${error.message}`;
  }
}

async function logOut() {
  await fetch(LOGIN, { method: "DELETE" });
  location.reload();
}

ask(LOGIN).then(({ name, means }) => {
  if (means !== "cookie") return; // another header isn't the page's to forget
  document.querySelector("header").append(element("button", { className: "leave", onclick: logOut }, "Log out ", outside(name)));
}, () => {});
