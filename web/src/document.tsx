// Documents, as a tree of text and as a table. Nothing of a document is ever anything but text.
import { field, isArray, isObject, short, type Value } from './ejson';

/** EditButton opens a document of a collection, if onEdit is there and the document has an _id. */
export function EditButton({ document: d, onEdit }: {
  document: Value;
  onEdit: ((id: Value) => void) | undefined;
}) {
  const id = field(d, '_id');
  if (!id || !onEdit) return null;
  return (
    <button type="button" class="small" aria-label={`Edit the document ${short(id, 60)}`} onClick={() => onEdit(id)}>
      Edit
    </button>
  );
}

/** Tree shows a value with the types of its parts. */
export function Tree({ value }: { value: Value }) {
  return (
    <pre class="tree" tabIndex={0}>
      <Node value={value} indent="" />
    </pre>
  );
}

function Node({ value: v, indent }: { value: Value; indent: string }) {
  const deeper = `${indent}  `;
  if (isObject(v)) {
    return (
      <>
        {'{'}
        {v.fields.map(([name, x], i) => (
          <span key={i}>
            {`\n${deeper}`}
            <span class="name">{name}</span>: <Node value={x} indent={deeper} />
          </span>
        ))}
        {v.fields.length > 0 && `\n${indent}`}
        {'}'}
      </>
    );
  }
  if (isArray(v)) {
    return (
      <>
        {'['}
        {v.items.map((x, i) => (
          <span key={i}>
            {`\n${deeper}`}
            <Node value={x} indent={deeper} />
          </span>
        ))}
        {v.items.length > 0 && `\n${indent}`}
        {']'}
      </>
    );
  }
  return <Scalar value={v} />;
}

function Scalar({ value: v }: { value: { type: string; text: string } }) {
  return (
    <>
      <span class={`value ${v.type.split(' ')[0]}`}>
        {v.type === 'String' ? JSON.stringify(v.text) : v.text}
      </span>
      {!plain.has(v.type) && <span class="type"> {v.type}</span>}
    </>
  );
}

/** plain are the types that the text of a value shows by itself. */
const plain = new Set(['String', 'Bool', 'Number']);

const mostColumns = 40;

/** Table shows documents with a column for each field of the first level. */
export function Table({ documents, label, onEdit }: {
  documents: Value[];
  label: string;
  onEdit?: ((id: Value) => void) | undefined;
}) {
  const names = new Set<string>();
  for (const d of documents) {
    for (const [name] of isObject(d) ? d.fields : []) names.add(name);
  }
  const columns = [...names].slice(0, mostColumns);
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table class="documents">
        {names.size > mostColumns && (
          <caption>The first {mostColumns} of {names.size} fields.</caption>
        )}
        <thead>
          <tr>
            {columns.map((name) => (
              <th key={name} scope="col">
                {name || <span class="muted">(empty)</span>}
              </th>
            ))}
            {onEdit && (
              <th scope="col">
                <span class="hidden">Action</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {documents.map((d, i) => {
            const fields = new Map(isObject(d) ? d.fields : []);
            return (
              <tr key={i}>
                {columns.map((name) => {
                  const v = fields.get(name);
                  return <td key={name}>{v && <Cell value={v} />}</td>;
                })}
                {onEdit && (
                  <td class="action">
                    <EditButton document={d} onEdit={onEdit} />
                  </td>
                )}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Cell({ value: v }: { value: Value }) {
  if (isObject(v) || isArray(v)) {
    return (
      <span class="value" title={v.type}>
        {short(v, 60)}
      </span>
    );
  }
  return (
    <>
      <span class={`value ${v.type.split(' ')[0]}`}>{v.text.slice(0, 120)}</span>
      {v.text.length > 120 && '…'}
      {!plain.has(v.type) && <span class="type"> {v.type}</span>}
    </>
  );
}
