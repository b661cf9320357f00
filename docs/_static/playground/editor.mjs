// The editor of the playground, which the build bundles with CodeMirror: it takes the place of a text area.
import { basicSetup, EditorView } from "codemirror";
import { python } from "@codemirror/lang-python";
import { indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

const failing = StateEffect.define(); // the number of a line, or 0
const marked = StateField.define({
  create: () => Decoration.none,
  update(found, { changes, effects, state }) {
    for (const effect of effects.filter((each) => each.is(failing))) {
      const line = effect.value > 0 && effect.value <= state.doc.lines ? state.doc.line(effect.value) : null;
      return line ? Decoration.set([Decoration.line({ class: "failing" }).range(line.from)]) : Decoration.none;
    }
    return found.map(changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

export function editor(area) {
  let quiet = false;
  const changed = EditorView.updateListener.of(({ docChanged, state }) => {
    if (!docChanged || quiet) return;
    area.value = state.doc.toString();
    area.dispatchEvent(new Event("input"));
  });
  const label = EditorView.contentAttributes.of({ "aria-label": "The algorithm" });
  const look = [indentUnit.of("    "), syntaxHighlighting(classHighlighter)];
  const extensions = [basicSetup, python(), ...look, marked, changed, label];
  const view = new EditorView({ doc: area.value, extensions });
  area.after(view.dom);
  area.hidden = true;
  return {
    begin: (text) => view.setState(EditorState.create({ doc: text, extensions })), // with nothing to undo
    set(text) {
      if (text === view.state.doc.toString()) return;
      quiet = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
      quiet = false;
    },
    mark: (line) => view.dispatch({ effects: failing.of(line ?? 0) }),
  };
}
