"use strict";
// Frames are elements with data-step.  The script marks them as `past` or `now`, and the lines of code that are active.
// The fragment #3 starts at the third frame.  A page around this one gets {frame} after each change, and may send it.
document.documentElement.classList.add("js");
const player = document.querySelector(".player");
const last = Number(player.dataset.last);
const slider = player.querySelector("input");
const output = player.querySelector("output");
const speed = player.querySelector("select");
const playing = player.querySelector("[data-do=play]");
const films = [...player.querySelectorAll(".film")].map((film) => {
  const steps = [...film.querySelectorAll("[data-step]")];
  const codes = [...film.querySelectorAll(".code")].map((code) => ({
    active: JSON.parse(code.dataset.active),
    lines: [...code.querySelectorAll("[data-line]")],
  }));
  return { steps, codes, last: Math.max(...steps.map((step) => Number(step.dataset.step))) };
});
const looping = player.querySelector("[data-do=loop]");
let frame = 0;
let timer = null;

function show(wanted) {
  frame = Math.min(Math.max(wanted, 0), last);
  for (const film of films) {
    const now = Math.min(frame, film.last);
    for (const step of film.steps) {
      step.classList.toggle("now", Number(step.dataset.step) === now);
      step.classList.toggle("past", Number(step.dataset.step) < now);
    }
    for (const { active, lines } of film.codes) {
      for (const line of lines) {
        const ranks = active[now][line.dataset.line];
        line.classList.toggle("now", ranks !== undefined);
        line.dataset.ranks = ranks ?? "";
      }
    }
  }
  slider.value = String(frame);
  output.textContent = `${frame} / ${last}`;
  for (const column of player.querySelectorAll(".matrix .now")) reveal(column, column.closest(".matrix"));
  if (parent !== window) parent.postMessage({ frame }, "*");
}

function reveal(column, matrix) {
  const inner = column.getBoundingClientRect();
  const outer = matrix.getBoundingClientRect();
  if (inner.left < outer.left || inner.right > outer.right) matrix.scrollLeft += inner.left - outer.left - outer.width / 2;
}

function pause() {
  clearTimeout(timer);
  timer = null;
  playing.setAttribute("aria-pressed", "false");
}

function tick() {
  const again = looping.getAttribute("aria-pressed") === "true";
  if (frame >= last && !again) return pause();
  timer = setTimeout(() => {
    show(frame < last ? frame + 1 : 0);
    tick();
  }, 1400 / Number(speed.value));
}

function play() {
  if (frame >= last) show(0);
  playing.setAttribute("aria-pressed", "true");
  player.classList.add("moving");
  tick();
}

function step(to) {
  pause();
  player.classList.add("moving");
  show(to);
}

const actions = {
  first: () => step(0),
  back: () => step(frame - 1),
  play: () => (timer === null ? play() : pause()),
  next: () => step(frame + 1),
  last: () => step(last),
  loop: () => looping.setAttribute("aria-pressed", String(looping.getAttribute("aria-pressed") !== "true")),
};
const keys = { " ": "play", k: "play", l: "loop", ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last" };

player.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (!button) return;
  actions[button.dataset.do]();
  if (event.detail) button.blur(); // clicked, not pressed by a key: let the space bar play
});
slider.addEventListener("input", () => step(Number(slider.value)));
document.addEventListener("keydown", (event) => {
  const action = keys[event.key];
  if (!action || event.ctrlKey || event.altKey || event.metaKey || event.target.closest("select, summary")) return;
  if (event.key === " " && event.target.closest("button, a")) return;
  event.preventDefault();
  actions[action]();
});
addEventListener("message", ({ source, data }) => {
  if (source === parent && Number.isInteger(data.frame)) show(data.frame);
});
addEventListener("hashchange", () => show(Number(location.hash.slice(1)) || 0));
show(Number(location.hash.slice(1)) || 0);
