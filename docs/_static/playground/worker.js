// Runs Python: answers {id, call, given} with {id, result} or {id, error}.
import { loadPyodide } from "../../playground/pyodide-314.0.7/pyodide.mjs";

const started = (async () => {
  const python = await loadPyodide();
  const answer = await fetch(new URL("../../playground/pycoll.zip", import.meta.url));
  python.unpackArchive(await answer.arrayBuffer(), "zip", { extractDir: "/home/pyodide" });
  return python.runPython(`
import json
from pycoll import playground
lambda call, given: json.dumps(getattr(playground, call)(*json.loads(given)))
`);
})();

started.then(
  () => postMessage({ loaded: true }),
  () => {}, // each request gets the error
);

addEventListener("message", async ({ data }) => {
  try {
    const ask = await started;
    postMessage({ id: data.id, result: JSON.parse(ask(data.call, JSON.stringify(data.given))) });
  } catch (error) {
    const said = String(error.message).trim().split("\n");
    postMessage({ id: data.id, error: said[said.length - 1].replace(/^ValueError: /, "") });
  }
});
