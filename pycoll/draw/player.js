"use strict";
// Plays films on one clock.  A film has frames, elements with data-step, each of which ends at a time: the simulated one,
// or without simulation the number of the frame.  The script marks frames as `past` or `now`, sets how far the current
// one is (--share, from 0 to 1), and marks the lines of code that are active.  A moment is a time at which a frame of some
// film ends; the buttons go from one to the next.  The fragment #3 starts at the third moment; #film shows nothing but
// the film and its controls, #play the film alone, again and again; the page around it gets {height}.  A page around this
// one gets {frame}, the number of the last moment, after each change, and may send it, {key}, or {scheme}, "light" or
// "dark".
document.documentElement.classList.add("js");
const player = document.querySelector(".player");
const slider = player.querySelector("input");
const output = player.querySelector("output");
const speed = player.querySelector("select");
const playing = player.querySelector("[data-do=play]");
const looping = player.querySelector("[data-do=loop]");
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
const FINE = 1000; // positions of the slider, if the clock is simulated
const SECONDS = 1.4; // of a frame, at speed 1
const MOST = 30; // of a simulated clock at speed 1, however many frames there are
const LONGEST = 100; // milliseconds between two pictures that count: the page may have been hidden
const REST = 0.7; // seconds at speed 1
const TWEEN = 450; // milliseconds from one moment to the next after a click

const films = [...player.querySelectorAll(".film")].map((film) => {
  const steps = [...film.querySelectorAll("[data-step]")];
  const last = Math.max(...steps.map((step) => Number(step.dataset.step)));
  const clock = JSON.parse(film.dataset.clock ?? "[0]");
  const simulated = clock[clock.length - 1] > 0;
  const times = simulated ? clock : [...Array(last + 1).keys()];
  const least = times[last] / FINE; // frames without messages take a moment, too
  for (let frame = 1; frame <= last; frame++) times[frame] = Math.max(times[frame], times[frame - 1] + least);
  const codes = [...film.querySelectorAll(".code")].map((code) => ({
    active: JSON.parse(code.dataset.active),
    lines: [...code.querySelectorAll("[data-line]")],
  }));
  return { element: film, steps, codes, last, times, simulated, frame: -1 };
});
const simulated = films.some((film) => film.simulated);
const moments = [...new Set(films.flatMap((film) => film.times))].sort((a, b) => a - b);
const last = moments.length - 1;
const end = moments[last];
const rate = simulated ? end / Math.min(MOST, SECONDS * last) : 1 / SECONDS; // of the clock, by second at speed 1
let now = 0;
let moment = 0; // the number of the last one
let running = null; // an animation
let target = null; // to which a step leads that is still drawn
slider.max = String(simulated ? FINE : last);

function show(time) {
  now = Math.min(Math.max(time, 0), end);
  moment = moments.findLastIndex((each) => each <= now);
  for (const film of films) {
    const ended = film.times.findLastIndex((each) => each <= now);
    const frame = ended < film.last && now > film.times[ended] ? ended + 1 : ended;
    const began = film.times[frame - 1] ?? 0;
    const share = frame === ended ? 1 : (now - began) / (film.times[frame] - began);
    if (frame !== film.frame) mark(film, frame);
    film.frame = frame;
    film.element.classList.toggle("ended", simulated && ended === film.last);
    for (const step of film.marked) step.style.setProperty("--share", share.toFixed(3));
  }
  slider.value = String(simulated ? Math.round((now / end) * FINE) : moment);
  output.textContent = `${moment} / ${last}` + (simulated ? ` \u00b7 ${(now * 1e6).toFixed(1)} \u00b5s` : "");
  if (parent !== window) parent.postMessage({ frame: moment }, "*");
}

function mark(film, frame) {
  for (const step of film.steps) {
    step.classList.toggle("now", Number(step.dataset.step) === frame);
    step.classList.toggle("past", Number(step.dataset.step) < frame);
  }
  film.marked = film.steps.filter((step) => step.classList.contains("now"));
  for (const { active, lines } of film.codes) {
    for (const line of lines) {
      const ranks = active[frame][line.dataset.line];
      line.classList.toggle("now", ranks !== undefined);
      line.dataset.ranks = ranks ?? "";
    }
  }
  for (const column of film.marked) if (column.closest(".matrix")) reveal(column, column.closest(".matrix"));
}

function reveal(column, matrix) {
  const inner = column.getBoundingClientRect();
  const outer = matrix.getBoundingClientRect();
  if (inner.left < outer.left || inner.right > outer.right) matrix.scrollLeft += inner.left - outer.left - outer.width / 2;
}

// Show the times that `when` returns for the milliseconds since now, until it returns null.
function animate(when) {
  const mine = (running = {});
  const began = performance.now();
  requestAnimationFrame(function next(clock) {
    if (running !== mine) return;
    const time = when(Math.max(0, clock - began));
    if (time === null) return pause();
    show(time);
    requestAnimationFrame(next);
  });
}

function pause() {
  if (target !== null) show(target);
  target = running = null;
  playing.setAttribute("aria-pressed", "false");
}

function play() {
  if (now >= end) show(0);
  let since = 0;
  let rested = 0; // seconds, before the first frame and after the last one
  playing.setAttribute("aria-pressed", "true");
  animate((elapsed) => {
    const passed = (Math.min(elapsed - since, LONGEST) / 1000) * Number(speed.value);
    since = elapsed;
    if (now > 0 && now < end) return now + passed * rate;
    const again = looping.getAttribute("aria-pressed") === "true";
    if (now >= end && !again) return null;
    rested += passed;
    if (rested < REST) return now;
    rested = 0;
    return now >= end ? 0 : passed * rate;
  });
}

function at(number) {
  return moments[Math.min(Math.max(Math.trunc(number) || 0, 0), last)];
}

function go(to) {
  const from = now;
  if (still || to !== moment + 1 || at(to) <= from) return show(at(to));
  target = at(to);
  animate((elapsed) => {
    if (elapsed < TWEEN) return from + ((target - from) * elapsed) / TWEEN;
    return null;
  });
}

const actions = {
  first: () => go(0),
  back: () => go(now > moments[moment] ? moment : moment - 1),
  play: () => (playing.getAttribute("aria-pressed") === "true" ? pause() : play()),
  next: () => go(moment + 1),
  last: () => go(last),
  loop: () => looping.setAttribute("aria-pressed", String(looping.getAttribute("aria-pressed") !== "true")),
};
function act(action) {
  if (target !== null || !["play", "loop"].includes(action)) pause();
  actions[action]();
}

const keys = { " ": "play", k: "play", l: "loop", ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last" };

player.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (!button) return;
  act(button.dataset.do);
  if (event.detail) button.blur(); // clicked, not pressed by a key: let the space bar play
});
slider.addEventListener("input", () => {
  pause();
  show(simulated ? (Number(slider.value) / FINE) * end : moments[Number(slider.value)]);
});
document.addEventListener("keydown", (event) => {
  const action = keys[event.key];
  if (!action || event.ctrlKey || event.altKey || event.metaKey || event.target.closest("select, summary")) return;
  if (event.key === " " && event.target.closest("button, a")) return;
  event.preventDefault();
  act(action);
});
const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
const dark = rules.filter((rule) => rule.media?.mediaText.includes("dark"));
addEventListener("message", ({ source, data }) => {
  if (source !== parent) return;
  if (Object.hasOwn(keys, data.key ?? "")) act(keys[data.key]);
  if (Number.isInteger(data.frame)) show(at(data.frame));
  if (["light", "dark"].includes(data.scheme)) {
    for (const rule of dark) rule.media.mediaText = data.scheme === "dark" ? "all" : "not all";
    document.documentElement.style.colorScheme = data.scheme;
  }
});
const given = () => at(Number(location.hash.slice(1)));
addEventListener("hashchange", () => show(given()));
show(given());
if (["#film", "#play"].includes(location.hash)) {
  document.documentElement.classList.add("bare");
  const tell = () => parent.postMessage({ height: Math.ceil(player.getBoundingClientRect().bottom) }, "*");
  addEventListener("resize", tell);
  tell();
}
if (location.hash === "#play") {
  document.documentElement.classList.add("alone");
  actions.loop();
  if (!still) play();
}
