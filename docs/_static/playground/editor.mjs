// The editor of the playground, which the build bundles with CodeMirror: it takes the place of a text area.
import { basicSetup, EditorView } from "codemirror";
import { isolateHistory } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import { indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

const PHRASES = {
  "zh-CN": {
    "Fold line": "折叠",
    "Unfold line": "展开",
    "folded code": "已折叠的代码",
    "Folded lines": "已折叠",
    "Unfolded lines": "已展开",
    "Find": "查找",
    "Replace": "替换",
    "next": "下一个",
    "previous": "上一个",
    "all": "全部",
    "match case": "区分大小写",
    "by word": "全词匹配",
    "regexp": "正则表达式",
    "replace": "替换",
    "replace all": "全部替换",
    "close": "关闭",
  },
};
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
  const label = EditorView.contentAttributes.of({ "aria-label": area.labels[0].textContent.trim() });
  const spoken = EditorState.phrases.of(PHRASES[document.documentElement.lang] ?? {});
  const look = [indentUnit.of("    "), syntaxHighlighting(classHighlighter)];
  const extensions = [basicSetup, python(), ...look, marked, changed, label, spoken];
  const view = new EditorView({ doc: area.value, extensions });
  area.after(view.dom);
  area.hidden = true;
  return {
    begin: (text) => view.setState(EditorState.create({ doc: text, extensions })), // with nothing to undo
    set(text) {
      if (text === view.state.doc.toString()) return;
      quiet = true;
      const changes = { from: 0, to: view.state.doc.length, insert: text };
      view.dispatch({ changes, annotations: isolateHistory.of("full") }); // undone by itself, also if typing follows
      quiet = false;
    },
    mark: (line) => view.dispatch({ effects: failing.of(line ?? 0) }),
  };
}
