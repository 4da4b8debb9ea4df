import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, exchange, mayBeDone } from './api';
import { segment } from './code';
import { difference, updateOf, written, type Change } from './difference';
import { parse, short, type Value } from './ejson';
import { LazyEditor } from './lazy';
import { Failure } from './parts';

interface Opened {
  document: Value;
  /** etag is missing if the principal does not see all of the document. */
  etag: string | undefined;
}

/** Edited is what a text changes in the document that was opened, or why that cannot be told. */
interface Edited {
  changes?: Change[];
  wrong?: string;
}

const accept = 'application/ejson';

function edited(opened: Opened | undefined, text: string): Edited {
  if (!opened) return {};
  try {
    JSON.parse(text);
    return { changes: difference(opened.document, parse(text)) };
  } catch (e) {
    return { wrong: (e as Error).message };
  }
}

/**
 * Edit shows one document and changes what the user has changed in it: the server gets these fields
 * and no others. It reads the document anew, and the change is refused if another came first.
 */
export function Edit(p: {
  database: string;
  collection: string;
  id: Value;
  /** onDone gets the document if it is changed, and what is wrong with its write concern. */
  onDone: (changed: Value | undefined, concern?: string) => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [opened, setOpened] = useState<Opened>();
  const [text, setText] = useState('');
  const [error, setError] = useState<unknown>();
  /** unsure says that a change may have been made: until the document is read again. */
  const [unsure, setUnsure] = useState(false);
  const [busy, setBusy] = useState(false);
  const save = useRef<HTMLButtonElement>(null);
  const { changes, wrong } = useMemo(() => edited(opened, text), [opened, text]);
  const path = `v1/databases/${segment(p.database)}/collections/${segment(p.collection)}/documents/${segment(p.id.raw)}`;

  const open = async (): Promise<void> => {
    setError(undefined);
    try {
      const answer = await exchange(path, { accept });
      const document = parse(answer.text);
      setOpened({ document, etag: answer.etag });
      setText(written(document, ''));
      setUnsure(false);
    } catch (e) {
      setError(e);
    }
  };
  useEffect(() => {
    dialog.current!.showModal();
    void open();
  }, []);

  const send = async (): Promise<void> => {
    setBusy(true);
    setError(undefined);
    try {
      const answer = await exchange(path, {
        method: 'PATCH', accept, body: updateOf(changes!),
        ...(opened!.etag ? { headers: { 'If-Match': opened!.etag } } : {}),
      });
      p.onDone(parse(answer.text), answer.concern);
    } catch (e) {
      setError(e);
      setUnsure((before) => before || mayBeDone(e));
      setBusy(false);
    }
  };

  return (
    <dialog ref={dialog} class="wide" aria-labelledby="edit" onClose={() => p.onDone(undefined)}>
      <h2 id="edit">
        Document <span class="mono">{short(p.id, 60)}</span> of <span class="mono">{p.database}.{p.collection}</span>
      </h2>
      <p class="muted">
        Only the fields that you change are sent. A plain number is an Int32 or, with a point or an
        exponent, a Double; other types have their names.
      </p>
      {opened && (
        <LazyEditor
          label="Document"
          text={text}
          fields={[]}
          stages={false}
          problem={undefined}
          onChange={(json) => {
            setText(json);
            setError(undefined);
          }}
          onRun={() => save.current?.focus()}
        />
      )}
      {wrong && (
        <p class="notice bad" role="status">
          {wrong}
        </p>
      )}
      {changes && <Changes changes={changes} guarded={opened!.etag !== undefined} />}
      {error !== undefined && (
        <Failure error={error} what={
          !opened ? 'The document cannot be read' : unsure ? 'It may be changed' : 'Nothing was changed'
        } />
      )}
      <p class="actions">
        <button type="button" onClick={() => p.onDone(undefined)}>
          Close
        </button>
        {opened && error !== undefined && (unsure || (error as ApiError).http === 412) && (
          <button type="button" onClick={() => void open()}>
            Read it again
          </button>
        )}
        <button ref={save} type="button" class="primary" disabled={busy || !changes?.length} onClick={() => void send()}>
          {changes && changes.length > 1 ? `Save ${changes.length} changes` : 'Save the change'}
        </button>
      </p>
    </dialog>
  );
}

function Changes({ changes, guarded }: { changes: Change[]; guarded: boolean }) {
  return (
    <section aria-label="Changes" role="status">
      {changes.length === 0 && <p class="muted">You have changed nothing.</p>}
      <ul class="differences">
        {changes.map((c) => (
          <li key={c.path}>
            <code>{c.path}</code>
            {c.before && <del>{short(c.before, 200)}</del>}
            {c.after ? <ins>{short(c.after, 200)}</ins> : <span class="muted">is removed</span>}
          </li>
        ))}
      </ul>
      {changes.length > 0 && !guarded && (
        <p class="muted">
          You do not see all fields of this document, so it has no ETag: a change that came since
          you opened it is not noticed.
        </p>
      )}
    </section>
  );
}
