import { useEffect, useState } from 'preact/hooks';
import { ApiError, call, mayBeDone, text, unacknowledged } from './api';
import { bodyOf, kindOf, pathOf, type Query } from './code';
import { Table } from './document';
import { elementsOf, field, isArray, parse, type Value } from './ejson';
import { Confirm, Failure } from './parts';

interface Preview {
  /** count is how many documents match, or would be inserted. */
  count: number;
  /** some are the first of them. */
  some: Value[];
}

const shown = 5;

/** look asks what a write would change. An insertion changes nothing that is there. */
async function look(q: Query): Promise<Preview> {
  const { main } = kindOf(q);
  if (main !== 'filter') {
    const documents = (main === 'document' ? [q.text] : elementsOf(q.text)).map(parse);
    return { count: documents.length, some: documents.slice(0, shown) };
  }
  const filter = `"filter":${q.text}`;
  const [counted, found] = await Promise.all([
    call<{ count: string | number }>(pathOf(q, 'countDocuments'), { body: `{${filter}}` }),
    text(pathOf(q, 'find'), { body: `{${filter},"limit":${shown}}`, accept: 'application/ejson' }),
  ]);
  const documents = field(parse(found), 'documents');
  return { count: Number(counted.count), some: documents && isArray(documents) ? documents.items : [] };
}

const documents = (n: number): string => (n === 1 ? '1 document' : `${n.toLocaleString('en')} documents`);

/** wordsOf says what a write does to how many documents. */
function wordsOf(q: Query, count: number): { verb: string; title: string } {
  const verb = q.kind.startsWith('insert') ? 'Insert' : q.kind.startsWith('update') ? 'Update' : 'Delete';
  const all = kindOf(q).many || kindOf(q).main === 'document';
  return { verb, title: `${verb} ${documents(all ? count : Math.min(count, 1))}` };
}

/** facts are the counts in the answer of a write. */
const facts: Record<string, string> = {
  matchedCount: 'matched', modifiedCount: 'changed', insertedCount: 'inserted',
  deletedCount: 'deleted', upsertedCount: 'inserted, as none matched',
};

const countsOf = (answer: Record<string, unknown>): string =>
  Object.entries(facts).filter(([name]) => Number(answer[name] ?? 0) > 0 || name === 'matchedCount' && name in answer)
    .map(([name, word]) => `${documents(Number(answer[name]))} ${word}`).join(', ');

/** stopsMidway says whether a server has ended a write with an error that leaves what was before it. */
const stopsMidway = (q: Query, e: unknown): boolean =>
  (q.kind === 'updateMany' || q.kind === 'deleteMany') &&
  e instanceof ApiError && e.body.server?.code !== undefined && e.body.retry !== 'same-request';

/**
 * Write shows what a write would change, asks whether it is to be done, and does it. Each query is
 * one of its own: what was looked at is what is confirmed.
 */
export function Write({ query: q, onBusy }: { query: Query; onBusy: (busy: boolean) => void }) {
  const [preview, setPreview] = useState<Preview>();
  const [asking, setAsking] = useState(false);
  const [busy, set] = useState(false);
  const setBusy = (busy: boolean): void => {
    set(busy);
    onBusy(busy);
  };
  const [outcome, setOutcome] = useState<string>();
  const [error, setError] = useState<{ error: unknown; what: string }>();
  useEffect(() => {
    look(q).then(setPreview, (e: unknown) => setError({ error: e, what: 'What matches cannot be shown' }));
  }, []);

  const write = async (): Promise<void> => {
    setAsking(false);
    setBusy(true);
    setError(undefined);
    try {
      const answer = await call<Record<string, unknown>>(pathOf(q), { body: bodyOf(q) });
      const counts = countsOf(answer);
      const done = counts ? `Done: ${counts}.` : q.kind === 'insertOne' ? 'Done: 1 document inserted.' : 'Done: nothing was changed.';
      const concern = answer['writeConcernError'] as { code: number; codeName: string } | undefined;
      setOutcome(concern ? `${done}${unacknowledged(`${concern.code} ${concern.codeName}`)}` : done);
    } catch (e) {
      const some = e instanceof ApiError ? countsOf(e.result) : '';
      const unknown = mayBeDone(e) || stopsMidway(q, e);
      if (some) setOutcome(`Done in part: ${some}.`);
      // What was looked at is not what is there now: it takes a new preview to write again.
      if (some || unknown) setPreview(undefined);
      setError({
        error: e,
        what: unknown
          ? 'It may or may not have been done, or a part of it: look before you repeat it'
          : some ? 'The rest was refused' : 'The write was refused',
      });
    }
    setBusy(false);
  };

  const words = preview && wordsOf(q, preview.count);
  return (
    <section class="panel" aria-label="Preview">
      {error && <Failure {...error} />}
      <p role="status">
        {outcome ?? (preview && <Found query={q} count={preview.count} />)}
      </p>
      {preview && preview.some.length > 0 && !outcome && (
        <>
          <Table documents={preview.some} label="The first documents" />
          {preview.count > preview.some.length && (
            <p class="muted">The first {preview.some.length} of {preview.count.toLocaleString('en')}.</p>
          )}
        </>
      )}
      {preview && preview.count > 0 && !outcome && (
        <p class="actions">
          <button type="button" class="danger" disabled={busy} onClick={() => setAsking(true)}>
            {words!.title}…
          </button>
        </p>
      )}
      {asking && (
        <Confirm
          title={`${words!.title}?`}
          action={`${words!.verb} now`}
          onDone={(yes) => (yes ? void write() : setAsking(false))}
        >
          <p>
            In <code>{q.database}.{q.collection}</code>. The console cannot undo it.
          </p>
          {q.kind === 'deleteMany' && parse(q.text).raw.replace(/\s/g, '') === '{}' && (
            <p class="error">The filter is empty: these are all documents of the collection.</p>
          )}
          {kindOf(q).update && <pre class="code" tabIndex={0}>{q.update.trim()}</pre>}
        </Confirm>
      )}
    </section>
  );
}

function Found({ query: q, count }: { query: Query; count: number }) {
  if (kindOf(q).main !== 'filter') return <>This inserts {documents(count)}:</>;
  if (count === 0) return <>No document matches: nothing would be changed.</>;
  return (
    <>
      <strong>{documents(count)}</strong> {count === 1 ? 'matches' : 'match'}
      {!kindOf(q).many && count > 1 ? '; the call changes one of them, whichever the server finds first' : ''}.
    </>
  );
}
