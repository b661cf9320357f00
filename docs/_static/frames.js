// Tells the films in a page which color scheme the reader has chosen for the site, and gives them the height they need.
const tell = () => {
  const { theme } = document.documentElement.dataset;
  for (const frame of document.querySelectorAll("iframe")) frame.contentWindow.postMessage({ scheme: theme }, "*");
};
new MutationObserver(tell).observe(document.documentElement, { attributeFilter: ["data-theme"] });
document.addEventListener("load", tell, true); // of the frames, too
addEventListener("message", ({ source, data }) => {
  const frame = [...document.querySelectorAll("iframe.film")].find((each) => each.contentWindow === source);
  if (frame && Number.isInteger(data.height)) frame.style.height = `${data.height}px`;
});
