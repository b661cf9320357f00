// Tells the films in a page which color scheme the reader has chosen for the site.
const tell = () => {
  const { theme } = document.documentElement.dataset;
  for (const frame of document.querySelectorAll("iframe")) frame.contentWindow.postMessage({ scheme: theme }, "*");
};
new MutationObserver(tell).observe(document.documentElement, { attributeFilter: ["data-theme"] });
document.addEventListener("load", tell, true); // of the frames, too
