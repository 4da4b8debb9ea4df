// The editor of JSON: CodeMirror, which is loaded when it is first shown. It is in a shadow root, so
// that its styles are constructed style sheets, which the page's policy allows.
import { autocompletion, closeBrackets, completionKeymap, type CompletionContext } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { json, jsonParseLinter } from '@codemirror/lang-json';
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { linter, setDiagnostics } from '@codemirror/lint';
import { Annotation } from '@codemirror/state';
import { EditorView, keymap } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { operators, stages } from './operators';

const colors = HighlightStyle.define([
  { tag: tags.propertyName, color: 'var(--series-1)' },
  { tag: tags.string, color: 'var(--series-4)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--series-2)' },
]);

const theme = EditorView.theme({
  '&': {
    border: '1px solid var(--edge)', borderRadius: '6px', background: 'var(--surface)',
    color: 'var(--text)', maxHeight: 'inherit',
  },
  '&.cm-focused': { outline: '3px solid var(--accent)', outlineOffset: '1px' },
  '.cm-scroller': {
    overflow: 'auto', fontFamily: 'var(--mono)', fontSize: '0.875rem', lineHeight: '1.5',
  },
  '.cm-content': { minHeight: '7rem', caretColor: 'var(--text)', padding: '0.5rem 0.25rem' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused .cm-matchingBracket': { background: 'var(--sunken)', outline: '1px solid var(--edge)' },
  '.cm-matchingBracket': { background: 'none' },
  '.cm-tooltip': { background: 'var(--surface)', color: 'var(--text)', border: '1px solid var(--edge)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { background: 'var(--accent)', color: 'var(--on-accent)' },
  '.cm-selectionBackground, &.cm-focused .cm-selectionBackground': { background: 'var(--idle)' },
});

/** given marks a change that comes from the page: it is not told to the page again. */
const given = Annotation.define<boolean>();

export default function Editor(p: {
  label: string;
  text: string;
  fields: string[];
  stages: boolean;
  problem: { at: number; message: string } | undefined;
  onChange: (text: string) => void;
  onRun: () => void;
}) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | undefined>(undefined);
  const now = useRef(p);
  now.current = p;
  // Before the page is drawn: an empty editor, without a height, would move what is below it.
  useLayoutEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: 'open' });
    const complete = (context: CompletionContext) => {
      const word = context.matchBefore(/"?[$\w.]*$/);
      if (!word || (word.text === '' && !context.explicit)) return null;
      const from = word.text.startsWith('"') ? word.from + 1 : word.from;
      const names = now.current.stages ? [...stages, ...operators] : operators;
      return {
        from,
        options: [
          ...names.map((label) => ({ label, type: 'keyword' })),
          ...now.current.fields.map((label) => ({ label, type: 'property' })),
        ].map((o) => ({ ...o, apply: from > word.from ? o.label : JSON.stringify(o.label) })),
        validFor: /^[$\w.]*$/,
      };
    };
    const made = new EditorView({
      doc: p.text,
      root,
      parent: root,
      extensions: [
        keymap.of([
          { key: 'Mod-Enter', run: () => (now.current.onRun(), true) },
          ...completionKeymap, ...defaultKeymap, ...historyKeymap,
        ]),
        history(), json(), bracketMatching(), closeBrackets(), indentOnInput(),
        syntaxHighlighting(colors), theme, linter(jsonParseLinter()),
        autocompletion({ override: [complete] }),
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ 'aria-label': p.label }),
        EditorView.updateListener.of((u) => {
          if (u.docChanged && !u.transactions.some((t) => t.annotation(given))) {
            now.current.onChange(u.state.doc.toString());
          }
        }),
      ],
    });
    view.current = made;
    return () => made.destroy();
  }, []);
  // At once, with the text that is drawn: later, the user could have typed more.
  useLayoutEffect(() => {
    const v = view.current!;
    if (v.state.doc.toString() !== p.text) {
      v.dispatch({
        changes: { from: 0, to: v.state.doc.length, insert: p.text },
        annotations: given.of(true),
      });
    }
  }, [p.text]);
  useEffect(() => {
    const v = view.current!;
    const at = Math.min(p.problem?.at ?? 0, v.state.doc.length);
    v.dispatch(setDiagnostics(v.state, p.problem
      ? [{ from: at, to: Math.min(at + 1, v.state.doc.length), severity: 'error', message: p.problem.message }]
      : []));
  }, [p.problem]);
  return <div class="editor" ref={host} />;
}
