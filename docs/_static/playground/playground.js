// The page of the playground: its controls, its state in the fragment of the address, and the worker that runs Python.
const LIMIT = 20000; // milliseconds for one answer; an edited algorithm may never end
const $ = (name) => document.querySelector(`#playground [name=${name}]`);
const say = (text, kind = "") => {
  const place = document.querySelector("#playground output");
  place.textContent = text;
  place.className = kind;
};

let worker = null;
let loaded = null; // a promise: resolved when the worker has loaded Python
let number = 0;
const waiting = new Map();

function start() {
  worker?.terminate();
  for (const { reject } of waiting.values()) reject(new Error("It took too long, and was stopped."));
  waiting.clear();
  worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  loaded = new Promise((resolve) => worker.addEventListener("message", resolve, { once: true }));
  worker.addEventListener("message", ({ data }) => {
    const { resolve, reject } = waiting.get(data.id) ?? {};
    waiting.delete(data.id);
    if (data.error === undefined) resolve?.(data.result);
    else reject?.(new Error(data.error));
  });
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    for (const { reject } of waiting.values()) reject(new Error("The Python runtime could not be loaded."));
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
let catalogue = {};
let original = ""; // the source of the chosen algorithm
let shown = 0; // counts requests, so that an answer that comes late is dropped

function state() {
  const values = { primitive: $("primitive").value, algorithm: $("algorithm").value, beside: $("beside").value };
  for (const name of NUMBERS) if (!$(name).disabled) values[name] = Number($(name).value);
  if ($("source").value !== original) values.source = $("source").value;
  return values;
}

function options(select, names, chosen) {
  select.replaceChildren(...names.map((name) => new Option(name || "nothing", name)));
  select.value = names.includes(chosen) ? chosen : names[0];
}

async function choose({ primitive, algorithm, beside, source, ...numbers }) {
  options($("primitive"), Object.keys(catalogue), primitive);
  const names = catalogue[$("primitive").value];
  options($("algorithm"), names, algorithm);
  options($("beside"), ["", ...names], beside);
  for (const name of NUMBERS) if (numbers[name]) $(name).value = numbers[name];
  const played = [$("algorithm").value, $("beside").value].filter(Boolean);
  const facts = await Promise.all(played.map((name) => ask("facts", $("primitive").value, name)));
  for (const name of ["root", "segments", "per_host"]) $(name).disabled = !facts.some((needs) => needs[name]);
  original = await ask("source", $("primitive").value, $("algorithm").value);
  $("source").value = source ?? original;
  await show();
}

async function show() {
  const mine = ++shown;
  const now = state();
  history.replaceState(null, "", "#" + encodeURIComponent(JSON.stringify(now)));
  const names = [now.algorithm, ...(now.beside ? [now.beside] : [])];
  try {
    let note = "";
    if (now.source !== undefined) {
      say("Proving ...");
      const found = await ask("check", now.primitive, now.algorithm, now.source);
      if (mine !== shown) return;
      if (!found.proved) return say(found.text, "wrong");
      note = found.text;
    }
    const numbers = [now.ranks, now.root ?? 0, now.segments ?? 1, now.per_host ?? 1];
    const page = await ask("page", now.primitive, names, ...numbers, now.source ?? null);
    if (mine !== shown) return;
    document.querySelector("#playground iframe").srcdoc = page;
    say(note, "right");
  } catch (error) {
    if (mine === shown) say(error.message, "wrong");
  }
}

function whole(event) {
  const field = event.target;
  const number = Math.round(Number(field.value)) || Number(field.min);
  field.value = Math.min(Math.max(number, Number(field.min)), Number(field.max));
  $("root").max = $("ranks").value - 1;
  $("root").value = Math.min($("root").value, $("root").max);
  show();
}

async function begin() {
  start();
  say("Loading Python ...");
  try {
    catalogue = await ask("catalogue");
    const given = location.hash.length > 1 ? JSON.parse(decodeURIComponent(location.hash.slice(1))) : {};
    await choose({ primitive: "allreduce", algorithm: "ring", ...given });
  } catch (error) {
    say(error.message, "wrong");
  }
}

const chosen = () => choose({ ...state(), source: undefined });
for (const name of ["primitive", "algorithm"]) $(name).addEventListener("change", chosen);
$("beside").addEventListener("change", () => choose(state()));
for (const name of NUMBERS) $(name).addEventListener("change", whole);
let typing = null;
$("source").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(show, 500);
});
$("reset").addEventListener("click", chosen);
begin();
