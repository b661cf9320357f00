// The page of the playground: its controls, its state in the fragment of the address, and the worker that runs Python.
const LIMIT = 20000; // milliseconds for one answer; an edited algorithm may never end
const films = document.querySelector("#playground iframe");
const words = JSON.parse(document.querySelector("div[data-words]").dataset.words);
const language = document.documentElement.lang === "zh-CN" ? "zh-CN" : "en";
const gif = new URL("../../playground/gif.js", import.meta.url).href;
const $ = (name) => document.querySelector(`#playground [name=${name}]`);
const say = (text, kind = "", picture = "") => {
  const place = document.querySelector("#playground output");
  place.textContent = text;
  place.className = kind;
  const figure = document.querySelector("#playground figure.waiting");
  figure.innerHTML = picture; // which Python has drawn
  figure.hidden = !picture;
};

let worker = null;
let loaded = null; // a promise: resolved when the worker has loaded Python
let number = 0;
const waiting = new Map();

function start() {
  worker?.terminate();
  for (const { reject } of waiting.values()) reject(new Error(words.stopped));
  waiting.clear();
  worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  loaded = new Promise((resolve) => worker.addEventListener("message", resolve, { once: true }));
  loaded.then(() => performance.mark("loaded"));
  worker.addEventListener("message", ({ data }) => {
    const { resolve, reject } = waiting.get(data.id) ?? {};
    waiting.delete(data.id);
    if (data.error === undefined) resolve?.(data.result);
    else reject?.(new Error(data.error));
  });
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    for (const { reject } of waiting.values()) reject(new Error(words.not_loaded));
    waiting.clear();
  });
}

function ask(call, ...given) {
  const id = ++number;
  return new Promise((resolve, reject) => {
    let timer = null;
    const asked = worker;
    loaded.then(() => {
      if (waiting.has(id) && worker === asked) timer = setTimeout(start, LIMIT);
    });
    const done = (settle) => (value) => {
      clearTimeout(timer);
      settle(value);
    };
    waiting.set(id, { resolve: done(resolve), reject: done(reject) });
    worker.postMessage({ id, call, given });
  });
}

const NUMBERS = ["ranks", "root", "segments", "per_host"];
const GIVEN = [...NUMBERS, "nbytes", "topology"];
let frame = 0; // that the page of the films shows
let catalogue = {};
let challenges = []; // with their names, primitives, tasks and texts
let original = ""; // the source of the chosen algorithm
let editor = null; // without it, there is a plain text area
const edits = new Map(); // what was written in place of the sources, by primitive and algorithm
let edited = ""; // what the editor shows, as a key of `edits`
let shown = 0; // counts requests, so that an answer that comes late is dropped
let choices = 0; // counts choices, so that only the last one is shown
let typing = null; // a timer: the proof begins when nothing is typed for a while

function state() {
  const values = { primitive: $("primitive").value, algorithm: $("algorithm").value, beside: $("beside").value };
  if ($("challenge").value) values.challenge = $("challenge").value;
  for (const name of NUMBERS) if (!$(name).disabled) values[name] = Number($(name).value);
  values.nbytes = Number($("nbytes").value);
  if ($("topology").value) values.topology = $("topology").value;
  if (frame) values.frame = frame;
  if ($("source").value !== original || values.challenge) values.source = $("source").value;
  return values;
}

let solved = []; // the names of challenges
try {
  solved = JSON.parse(localStorage.getItem("pycoll-solved") ?? "[]");
} catch {
  // the browser keeps nothing
}

function solve(name) {
  solved = [...new Set([...solved, name])];
  listChallenges();
  try {
    localStorage.setItem("pycoll-solved", JSON.stringify(solved));
  } catch {
    // it is known until the page is left
  }
}

function listChallenges() {
  const chosen = $("challenge").value;
  const named = challenges.map(({ name }) => new Option((solved.includes(name) ? "\u2713 " : "") + name, name));
  $("challenge").replaceChildren(new Option(words.no_challenge, ""), ...named);
  $("challenge").value = chosen;
}

function keep() {
  if ($("source").value === original) edits.delete(edited);
  else edits.set(edited, $("source").value);
}

function options(list, names, chosen) {
  list.replaceChildren(...names.map((name) => new Option(name || words.nothing_beside, name)));
  list.value = names.includes(chosen) ? chosen : names[0];
}

async function choose({ primitive, algorithm, beside, source, challenge, ...given }) {
  const mine = ++choices;
  clearTimeout(typing);
  const task = challenges.find(({ name }) => name === challenge);
  $("challenge").value = task?.name ?? "";
  const shownTask = document.querySelector("#playground .task");
  shownTask.textContent = task?.task ?? "";
  shownTask.hidden = !task;
  for (const name of ["primitive", "algorithm", "beside"]) $(name).disabled = Boolean(task);
  if (task) [primitive, algorithm, beside] = [task.primitive, "naive", ""];
  options($("primitive"), Object.keys(catalogue), primitive);
  const names = catalogue[$("primitive").value];
  options($("algorithm"), names, algorithm);
  options($("beside"), ["", ...names], beside);
  for (const name of GIVEN) if (given[name] !== undefined) $(name).value = inside($(name), given[name]);
  const played = [$("algorithm").value, $("beside").value].filter(Boolean);
  const facts = await Promise.all(played.map((name) => ask("facts", $("primitive").value, name)));
  const text = task?.text ?? (await ask("source", $("primitive").value, $("algorithm").value));
  if (mine !== choices) return;
  for (const name of ["root", "segments"]) $(name).disabled = !facts.some((needs) => needs[name]);
  if (given.per_host === undefined) $("per_host").value = facts.some((needs) => needs.per_host) ? 2 : 1;
  const before = edited;
  edited = task?.name ?? `${$("primitive").value}.${$("algorithm").value}`;
  original = text;
  $("source").value = source ?? edits.get(edited) ?? original;
  if (edited === before) editor?.set($("source").value);
  else editor?.begin($("source").value);
  keep();
  await show(given.frame);
}

function remember() {
  history.replaceState(null, "", "#" + encodeURIComponent(JSON.stringify(state())));
}

async function show(wanted = 0) {
  const mine = ++shown;
  frame = wanted;
  const now = state();
  remember();
  const names = [now.algorithm, ...(now.beside ? [now.beside] : [])];
  try {
    let note = "";
    editor?.mark(null);
    if (now.source !== undefined) {
      say(words.proving);
      const judge = now.challenge ? ["judged", now.challenge] : ["check", now.primitive, now.algorithm];
      const found = await ask(...judge, now.source, language);
      if (mine !== shown) return;
      if (found.proved && now.challenge) solve(now.challenge);
      films.classList.toggle("stale", !found.proved);
      editor?.mark(found.line);
      if (!found.proved && !found.correct) return say(found.text, "wrong", found.waiting);
      note = found.text;
    }
    const numbers = [now.ranks, now.root ?? 0, now.segments ?? 1, now.per_host ?? 1];
    options($("topology").list, await ask("topologies", now.ranks, now.per_host));
    const given = [now.nbytes, now.topology ?? "", now.source ?? null, now.challenge ?? "", gif, language];
    const page = await ask("page", now.primitive, names, ...numbers, ...given);
    if (mine !== shown) return;
    films.srcdoc = page;
    films.classList.toggle("race", names.length > 1);
    films.classList.remove("stale");
    if (wanted) films.addEventListener("load", () => films.contentWindow.postMessage({ frame: wanted }, "*"), { once: true });
    say(note, "right");
  } catch (error) {
    if (mine === shown) say(error.message, "wrong");
  }
}

function inside(field, value) {
  if (field.type !== "number") return value;
  const number = Math.round(Number(value)) || Number(field.min);
  return Math.min(Math.max(number, Number(field.min)), Number(field.max));
}

function whole(event) {
  event.target.value = inside(event.target, event.target.value);
  $("root").max = $("ranks").value - 1;
  $("root").value = Math.min($("root").value, $("root").max);
  show();
}

function linked() {
  try {
    return JSON.parse(decodeURIComponent(location.hash.slice(1) || "{}"));
  } catch {
    return {}; // not a link of this page
  }
}

async function follow() {
  try {
    const ranks = matchMedia("(max-width: 40rem)").matches ? 4 : undefined; // or as before
    await choose({ primitive: "allreduce", algorithm: "ring", ranks, ...linked() });
  } catch (error) {
    say(error.message, "wrong");
  }
}

async function begin() {
  start();
  say(words.loading);
  import(new URL("../../playground/editor.js", import.meta.url)).then(
    (made) => (editor = made.editor($("source"))),
    () => {}, // the site was built without it
  );
  try {
    [catalogue, challenges] = [await ask("catalogue"), await ask("challenges", language)];
    listChallenges();
    await follow();
  } catch (error) {
    say(error.message, "wrong");
  }
}

const chosen = () => choose({ ...state(), source: undefined, per_host: undefined, frame: 0 });
$("challenge").addEventListener("change", chosen);
for (const name of ["primitive", "algorithm"]) $(name).addEventListener("change", chosen);
$("beside").addEventListener("change", () => choose(state()));
for (const name of NUMBERS) $(name).addEventListener("change", whole);
for (const name of ["nbytes", "topology"]) $(name).addEventListener("change", () => show(frame));
addEventListener("message", ({ source, data }) => {
  if (source !== films.contentWindow || !Number.isInteger(data.frame) || !films.srcdoc) return; // a film of the build
  frame = data.frame;
  remember();
});
films.addEventListener("load", () => performance.mark("played"));
$("source").addEventListener("input", () => {
  keep();
  clearTimeout(typing);
  typing = setTimeout(show, 500);
});
$("reset").addEventListener("click", () => {
  edits.delete(edited);
  chosen();
});
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(location.href);
  say(words.copied, "right");
});
addEventListener("hashchange", follow);
document.addEventListener("keydown", (event) => {
  if (event.target === document.body && !event.ctrlKey && !event.altKey && !event.metaKey) {
    films.contentWindow.postMessage({ key: event.key }, "*");
    if (event.key === " ") event.preventDefault();
  }
});
begin();
