import { useEffect, useState } from 'preact/hooks';
import { text } from './api';
import { field, isArray, isObject, parse, type Value } from './ejson';
import { refusals } from './calls';
import { Tree } from './document';
import { LazyEditor } from './lazy';
import { Failure } from './parts';
import { callOf } from './refusal';
import { remember, route } from './router';

interface Asked {
  principal: string;
  groups: string;
  claims: string;
  call: string;
  request: string;
}

/** calls are those that the field completes. Any other call of the API can be written. */
const calls = (
  'Find FindOne Aggregate CountDocuments Distinct InsertOne InsertMany UpdateOne UpdateMany ReplaceOne ' +
  'DeleteOne DeleteMany FindOneAndUpdate BulkWrite ExplainFind StreamFind'
).split(' ').map((name) => `DocumentService/${name}`).concat(
  'DocumentResourceService/GetDocument', 'DocumentResourceService/PatchDocument', 'CommandService/RunCommand',
  'ChangeStreamService/Watch', 'CatalogService/ListCollections', 'CatalogService/DropCollection',
  'DeploymentService/ListHandles');

const names = (list: string): string[] => list.split(/[\s,]+/).filter(Boolean);

/** Why shows what the policy makes of a request: who decides, the filter, what is hidden, limits. */
export function Why() {
  const q = route.value.query;
  const [asked, setAsked] = useState<Asked>({
    principal: q.get('principal') ?? '', groups: q.get('groups') ?? '', claims: q.get('claims') ?? '',
    call: q.get('call') ?? 'DocumentService/Find',
    request: q.get('q') ?? '{\n  "database": "shop",\n  "collection": "orders",\n  "filter": {}\n}',
  });
  /** answer is kept with what it answers: the form may have another request by now. */
  const [answer, setAnswer] = useState<{ answer: Value; call: string; partly: boolean }>();
  const [error, setError] = useState<unknown>();
  const [wrong, setWrong] = useState<string>();
  /** refused is the request id of a refused call of which only the names are known. */
  const refused = q.get('refused');
  const said = refusals.get(refused ?? '');
  const set = (some: Partial<Asked>): void => setAsked((old) => ({ ...old, ...some }));

  /** setCall takes a path of REST as well, and then the request gets its names. */
  const setCall = (call: string): void => {
    const found = callOf(call, asked.request);
    set(found ? found : { call });
  };
  const explain = async (): Promise<void> => {
    setAnswer(undefined);
    setError(undefined);
    setWrong(undefined);
    for (const [name, json] of [['Request', asked.request || '{}'], ['Claims', asked.claims || '{}']] as const) {
      try {
        JSON.parse(json);
      } catch (e) {
        return setWrong(`${name}: ${(e as Error).message}`);
      }
    }
    const { principal, groups, claims, call, request } = asked;
    remember('why', {
      ...(principal && { principal }), ...(groups && { groups }), ...(claims && { claims }), call, q: request,
      ...(refused && { refused }),
    });
    const parts = [
      `"principal":${JSON.stringify(principal)}`, `"call":${JSON.stringify(call)}`,
      `"request":${request || '{}'}`,
      ...(groups ? [`"groups":${JSON.stringify(names(groups))}`] : []),
      ...(claims ? [`"claims":${claims}`] : []),
    ];
    try {
      const body = `{${parts.join(',')}}`;
      const explained = parse(await text('v1/deployment/policy:explain', { body }));
      setAnswer({ answer: explained, call, partly: refused !== null && request === q.get('q') });
    } catch (e) {
      setError(e);
    }
  };
  useEffect(() => {
    if (q.has('call') && q.has('q')) void explain();
  }, []);

  return (
    <>
      {refused && (
        <div class="notice">
          <p>The call was refused{said && <>: <strong>{said}</strong></>}</p>
          <p class="muted">
            The gateway keeps neither filters nor documents of requests. Below is what the rules say
            of the rest. Add what the client has sent, and explain it again.
          </p>
        </div>
      )}
      <form
        class="query"
        onSubmit={(e) => {
          e.preventDefault();
          void explain();
        }}
      >
        <div class="fields">
          <p>
            <label for="why-principal">Principal</label>
            <input id="why-principal" class="mono" placeholder="not authenticated" value={asked.principal} spellcheck={false}
              autocomplete="off" onInput={(e) => set({ principal: e.currentTarget.value })} />
          </p>
          <p>
            <label for="why-groups">Groups</label>
            <input id="why-groups" class="mono" placeholder="those of its key" value={asked.groups} spellcheck={false}
              autocomplete="off" onInput={(e) => set({ groups: e.currentTarget.value })} />
          </p>
          <p>
            <label for="why-claims">Claims</label>
            <input id="why-claims" class="mono" placeholder='{"tenant": "acme"}' value={asked.claims} spellcheck={false}
              autocomplete="off" onInput={(e) => set({ claims: e.currentTarget.value })} />
          </p>
          <p class="wide">
            <label for="why-call">Call, or a path of REST</label>
            <input id="why-call" class="mono" value={asked.call} list="why-calls" spellcheck={false}
              autocomplete="off" onInput={(e) => setCall(e.currentTarget.value)} />
            <datalist id="why-calls">
              {calls.map((c) => (
                <option key={c} value={c} />
              ))}
            </datalist>
          </p>
        </div>
        <p class="label" aria-hidden="true">
          Request
        </p>
        <LazyEditor
          label="Request"
          text={asked.request}
          fields={['database', 'collection', 'filter', 'projection', 'pipeline', 'update', 'document']}
          stages
          problem={undefined}
          onChange={(request) => set({ request })}
          onRun={() => void explain()}
        />
        <p class="actions">
          <button type="submit" class="primary">
            Explain
          </button>
        </p>
      </form>
      {wrong && (
        <p class="notice bad" role="alert">
          {wrong}
        </p>
      )}
      {error !== undefined && <Failure error={error} what="The request cannot be explained" />}
      <div role="status">{answer && <Answer {...answer} />}</div>
    </>
  );
}

const textOf = (v: Value | undefined): string | undefined => (v && 'text' in v ? v.text : undefined);
const list = (v: Value | undefined): Value[] => (v && isArray(v) ? v.items : []);
const words = (v: Value | undefined): string => list(v).map((x) => textOf(x) ?? '').join(', ');

/** Answer shows an explanation. partly says that the request lacks what was refused. */
function Answer({ answer, call, partly }: { answer: Value; call: string; partly: boolean }) {
  const get = (name: string): string | undefined => textOf(field(answer, name));
  const allowed = get('allowed') === 'true';
  const limits = field(answer, 'limits');
  const claims = field(answer, 'claims');
  const changes = list(field(answer, 'changes'));
  const near = list(field(answer, 'nearPermits'));
  const rows: [string, Value | string | undefined][] = [
    ['Only documents that match', field(limits, 'filter')], ['Inserted documents get', field(limits, 'forced')],
    ['Hidden fields', words(field(limits, 'hidden'))], ['Fields it may not write', words(field(limits, 'readOnly'))],
    ['Commands', words(field(limits, 'commands'))], ['Options', words(field(limits, 'options'))],
  ];
  const shown = rows.filter(([, v]) => v !== undefined && v !== '');
  return (
    <section class="panel verdict" aria-labelledby="verdict">
      <h2 id="verdict" class={allowed ? 'good' : 'bad'}>
        {allowed ? (partly ? 'What is known of it is allowed' : 'Allowed') : 'Refused'} by <span class="mono">{get('rule')}</span>
      </h2>
      {get('refusal') && (
        <p class="message">
          {get('refusal')}
          {get('field') && (
            <>
              {' '}
              (in <code>{get('field')}</code>)
            </>
          )}
        </p>
      )}
      {(near.length > 0 || get('permit')) && (
        <ul class="near">
          {near.map((n) => (
            <li key={textOf(field(n, 'rule'))}>
              <span class="mono">{textOf(field(n, 'rule'))}</span> would allow it if <code>{textOf(field(n, 'condition'))}</code>
            </li>
          ))}
          {get('permit') && (
            <li>
              This rule would allow it: <code>{get('permit')}</code>
            </li>
          )}
        </ul>
      )}
      <dl class="properties">
        <div>
          <dt>Who calls</dt>
          <dd>
            <code>{get('principal') || 'a client that is not authenticated'}</code>
            {words(field(answer, 'groups')) && <> in {words(field(answer, 'groups'))}</>}
            {claims && isObject(claims) && claims.fields.length > 0 && <Tree value={claims} />}
          </dd>
        </div>
        {shown.map(([name, v]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{typeof v === 'string' ? <code>{v}</code> : <Tree value={v!} />}</dd>
          </div>
        ))}
        {limits && shown.length === 0 && (
          <div>
            <dt>Limits</dt>
            <dd>None: all documents, all fields.</dd>
          </div>
        )}
        {get('noCommands') && (
          <div>
            <dt>No commands</dt>
            <dd>
              <code>{get('noCommands')}</code> forbids or limits the use of some collections, and commands
              reach all.
            </dd>
          </div>
        )}
      </dl>
      {allowed && (
        <>
          <h3>What the policy changes in {call}</h3>
          {changes.length === 0 && <p class="muted">Nothing: the request goes on as it is.</p>}
          <ul class="differences">
            {changes.map((c) => {
              const [name, before, after] = ['field', 'before', 'after'].map((n) => textOf(field(c, n)));
              return (
                <li key={name}>
                  <code>{name}</code>
                  {before !== undefined && <del>{before}</del>}
                  {after !== undefined && <ins>{after}</ins>}
                </li>
              );
            })}
          </ul>
        </>
      )}
    </section>
  );
}
