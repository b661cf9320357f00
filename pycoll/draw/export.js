// Saves what the player shows: this moment as SVG, the film as GIF or as video.  A control of the player ends a save.
// The video plays while it is recorded.  GIF needs the encoder, which only pages of a site load.
const SVG = player.querySelector("svg").namespaceURI;
const HEAD = 30; // the height of the titles, and the space between two films
const WIDEST = { gif: 1000, video: 1280 }; // pixels
const PER_SECOND = 10; // pictures in a GIF
const MOST_PICTURES = 120; // in a GIF, however long the film is
const VIDEOS = { mp4: "video/mp4;codecs=avc1.42E01E", webm: "video/webm" };

const exportButtons = Object.fromEntries(
  [...player.querySelectorAll("[data-save]")].map((button) => [button.dataset.save, button]),
);
const container = Object.keys(VIDEOS).find((name) => globalThis.MediaRecorder?.isTypeSupported(VIDEOS[name]));
exportButtons.gif.hidden = typeof gifEncoder === "undefined";
exportButtons.video.hidden = !container;
if (container) exportButtons.video.textContent = { mp4: "MP4", webm: "WebM" }[container];

function element(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Return the style sheet of drawings for the color scheme of the page, with its colors in place of their names, because
// many programs that read SVG know no variables.
function drawingStyle() {
  const colors = getComputedStyle(player.querySelector("svg.drawing"));
  const rules = [...document.styleSheets[0].cssRules].filter((rule) => !rule.media);
  const text = rules.map((rule) => rule.cssText).join("\n");
  return text.replace(/var\((--\w+)\)/g, (_, name) => colors.getPropertyValue(name).trim());
}

// Return the moment that the player shows as an element of SVG, with a title above each film.
function picture(style) {
  const shown = films.map((film) => film.element.querySelector(".matrix svg, .frames > .now svg"));
  const sizes = shown.map((svg) => svg.viewBox.baseVal);
  let left = HEAD / 2;
  const parts = shown.map((svg, index) => {
    const { width, height } = sizes[index];
    const copy = svg.cloneNode(true);
    copy.removeAttribute("style");
    for (const [key, value] of Object.entries({ x: left, y: HEAD, width, height })) copy.setAttribute(key, value);
    const title = element("text", { class: "name", x: left + 8, y: HEAD - 8 }, svg.getAttribute("aria-label"));
    left += width + HEAD;
    if (svg.closest(".matrix")) return element("g", { class: "matrix" }, title, copy);
    const share = svg.closest(".now").style.getPropertyValue("--share");
    return element("g", {}, title, element("g", { class: "now", style: `--share:${share}` }, copy));
  });
  const width = left - HEAD / 2;
  const height = Math.max(...sizes.map((size) => size.height)) + 1.5 * HEAD;
  const paper = element("rect", { class: "paper", width, height });
  const heads = player.querySelector(".heads defs").cloneNode(true);
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  return element("svg", { class: "drawing js", ...size }, element("style", {}, style), heads, paper, ...parts);
}

const markup = (svg) => new XMLSerializer().serializeToString(svg);

// Return a canvas as large as the films, and a function that paints the moment on it.
function canvasFor(kind) {
  const style = drawingStyle();
  const { width, height } = picture(style).viewBox.baseVal;
  const scale = Math.min(2, WIDEST[kind] / width);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height].map((size) => 2 * Math.round((size * scale) / 2)); // for video codecs
  const context = canvas.getContext("2d", { willReadFrequently: kind === "gif" });
  const paint = async () => {
    const image = new Image();
    image.src = `data:image/svg+xml,${encodeURIComponent(markup(picture(style)))}`;
    await image.decode();
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
  };
  return { canvas, context, paint };
}

const duration = () => end / rate / Number(speed.value); // seconds

const saves = {
  svg: () => new Blob([markup(picture(drawingStyle()))], { type: "image/svg+xml" }),

  async gif(stopped) {
    const { canvas, context, paint } = canvasFor("gif");
    const { width, height } = canvas;
    const gif = gifEncoder.GIFEncoder();
    const count = Math.max(1, Math.min(MOST_PICTURES, Math.round(PER_SECOND * duration())));
    for (let number = 0; number <= count; number++) {
      show((end * number) / count);
      await paint();
      if (stopped()) return null;
      const { data } = context.getImageData(0, 0, width, height);
      const palette = gifEncoder.quantize(data, 256);
      const resting = number === 0 || number === count;
      const delay = resting ? 1000 * REST : (1000 * duration()) / count;
      gif.writeFrame(gifEncoder.applyPalette(data, palette), width, height, { palette, delay });
    }
    gif.finish();
    return new Blob([gif.bytes()], { type: "image/gif" });
  },

  async video(stopped) {
    const { canvas, paint } = canvasFor("video");
    const recorder = new MediaRecorder(canvas.captureStream(), { mimeType: VIDEOS[container] });
    const pieces = [];
    recorder.addEventListener("dataavailable", ({ data }) => pieces.push(data));
    const recorded = new Promise((resolve) => recorder.addEventListener("stop", resolve));
    show(0);
    await paint();
    recorder.start();
    const length = duration();
    const began = performance.now();
    for (let seconds = 0; seconds < length + 2 * REST && !stopped(); seconds = (performance.now() - began) / 1000) {
      show(end * Math.min(Math.max((seconds - REST) / length, 0), 1));
      await paint();
      await new Promise(requestAnimationFrame);
    }
    recorder.stop();
    await recorded;
    return stopped() ? null : new Blob(pieces, { type: recorder.mimeType });
  },
};

async function save(kind) {
  pause();
  const mine = (running = {});
  for (const button of Object.values(exportButtons)) button.disabled = true;
  try {
    const file = await saves[kind](() => running !== mine);
    if (!file) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(file);
    link.download = `${document.title.replace(/[^\w.]+/g, "-")}.${kind === "video" ? container : kind}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000); // the browser has opened it by then
  } finally {
    if (running === mine) running = null;
    for (const button of Object.values(exportButtons)) button.disabled = false;
  }
}

player.addEventListener("click", (event) => {
  const button = event.target.closest("[data-save]");
  if (button) save(button.dataset.save);
});
