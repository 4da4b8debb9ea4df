// The server's reply to explain, as a picture: the stages of the plan that won, each above those
// that feed it.
import { Tree } from './document';
import { field, isArray, isObject, short, type Value } from './ejson';

interface Stage {
  name: string;
  facts: [string, string][];
  /** bad says why the stage is worth a look. */
  bad: string | undefined;
  from: Stage[];
}

const textOf = (v: Value | undefined): string | undefined => (v && 'text' in v ? v.text : undefined);
const items = (v: Value | undefined): Value[] => (v && isArray(v) ? v.items : []);

/** facts has the fields of a stage that show, with what they are called. */
const facts: [string, string][] = [
  ['indexName', 'index'], ['nReturned', 'returned'], ['docsExamined', 'documents read'],
  ['keysExamined', 'keys read'], ['executionTimeMillisEstimate', 'ms'], ['direction', 'direction'],
  ['limitAmount', 'limit'], ['skipAmount', 'skip'],
];

/** texts has the fields of a stage that show as documents. */
const texts: [string, string][] = [['keyPattern', 'keys'], ['sortPattern', 'by'], ['filter', 'filter'], ['indexBounds', 'bounds']];

function stageOf(v: Value): Stage {
  const name = textOf(field(v, 'stage')) ?? 'stage';
  const shards = items(field(v, 'shards')).map(shardOf);
  const inner = ['inputStage', 'outerStage', 'innerStage', 'thenStage', 'elseStage']
    .map((n) => field(v, n)).filter((x) => x !== undefined);
  const from = [...inner, ...items(field(v, 'inputStages'))].map(stageOf);
  const shown: [string, string][] = [];
  for (const [n, word] of facts) {
    const text = textOf(field(v, n));
    if (text !== undefined) shown.push([word, text]);
  }
  for (const [n, word] of texts) {
    const x = field(v, n);
    if (x && isObject(x) && x.fields.length > 0) shown.push([word, short(x, 120)]);
  }
  return { name, facts: shown, bad: warning(name), from: [...from, ...shards] };
}

const warning = (name: string): string | undefined =>
  name === 'COLLSCAN'
    ? 'reads the whole collection: no index is used'
    : name === 'SORT'
      ? 'sorts in memory: no index has this order'
      : undefined;

function shardOf(v: Value): Stage {
  const plan = field(v, 'executionStages') ?? winner(field(v, 'queryPlanner') ?? v);
  return {
    name: textOf(field(v, 'shardName')) ?? 'shard', facts: [], bad: undefined,
    from: plan ? [stageOf(plan)] : [],
  };
}

/** winner returns the plan that won. Newer servers have it one level deeper. */
function winner(planner: Value | undefined): Value | undefined {
  const plan = field(planner, 'winningPlan');
  return field(plan, 'queryPlan') ?? plan;
}

/** planOf returns the last stage of a reply; undefined if it has none that is known. */
function planOf(reply: Value): Stage | undefined {
  const stages = items(field(reply, 'stages'));
  if (stages.length > 0) {
    return stages.reduce<Stage | undefined>((before, s) => {
      const [name, of] = isObject(s) ? (s.fields[0] ?? ['', undefined]) : ['', undefined];
      if (name === '$cursor' && of) return planOf(of);
      const told = (['nReturned', 'executionTimeMillisEstimate'] as const).flatMap((n): [string, string][] => {
        const text = textOf(field(s, n));
        return text === undefined ? [] : [[n === 'nReturned' ? 'returned' : 'ms', text]];
      });
      return {
        name, bad: undefined, from: before ? [before] : [],
        facts: [...told, ...(of ? [['is', short(of, 120)] as [string, string]] : [])],
      };
    }, undefined);
  }
  const shards = field(reply, 'shards');
  if (shards && isObject(shards)) {
    return {
      name: 'merge', facts: [], bad: undefined,
      from: shards.fields.map(([shard, x]) => {
        const plan = planOf(x);
        return { name: shard, facts: [], bad: undefined, from: plan ? [plan] : [] };
      }),
    };
  }
  const run = field(field(reply, 'executionStats'), 'executionStages');
  const won = winner(field(reply, 'queryPlanner'));
  // The stages of the slot-based engine say little; its plan has the words that people know.
  const best = run && field(run, 'stage') && !field(field(field(reply, 'queryPlanner'), 'winningPlan'), 'slotBasedPlan')
    ? run
    : (won ?? run);
  return best && (field(best, 'stage') || field(best, 'shards')) ? stageOf(best) : undefined;
}

const totals: [string, string][] = [
  ['nReturned', 'returned'], ['totalDocsExamined', 'documents read'], ['totalKeysExamined', 'keys read'],
  ['executionTimeMillis', 'ms'],
];

/** Plan shows how the server runs a query. */
export function Plan({ reply }: { reply: Value }) {
  const plan = planOf(reply);
  const run = field(reply, 'executionStats');
  const sums = totals.map(([n, word]) => [word, textOf(field(run, n))] as const).filter(([, t]) => t !== undefined);
  return (
    <section class="panel" aria-labelledby="plan">
      <header>
        <h2 id="plan">How the server runs it</h2>
        <dl class="facts">
          {sums.map(([word, text]) => (
            <div key={word}>
              <dt>{word}</dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
      </header>
      {plan ? (
        <ul class="plan">
          <Box stage={plan} />
        </ul>
      ) : (
        <p class="muted">The server’s reply has no stages that the console knows.</p>
      )}
      <details>
        <summary>The server’s reply</summary>
        <Tree value={reply} />
      </details>
    </section>
  );
}

function Box({ stage: s }: { stage: Stage }) {
  return (
    <li>
      <div class={s.bad ? 'stage bad' : 'stage'}>
        <strong class="mono">{s.name}</strong>
        {s.bad && <span class="error"> {s.bad}</span>}
        {s.facts.length > 0 && (
          <dl class="facts">
            {s.facts.map(([word, text]) => (
              <div key={word}>
                <dt>{word}</dt>
                <dd class="mono">{text}</dd>
              </div>
            ))}
          </dl>
        )}
      </div>
      {s.from.length > 0 && (
        <ul>
          {s.from.map((x, i) => (
            <Box key={i} stage={x} />
          ))}
        </ul>
      )}
    </li>
  );
}
