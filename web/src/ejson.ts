// Extended JSON as it is written: fields in their order, also those that JavaScript's objects would
// move or drop, and each value with its BSON type.

type Shape =
  | { type: 'Object'; fields: [string, Value][] }
  | { type: 'Array'; items: Value[] }
  | { type: string; text: string };

/** Value is a value, with the text that it was read from. */
export type Value = Shape & { raw: string };

export const isObject = (v: Value): v is Extract<Shape, { fields: unknown }> & { raw: string } =>
  'fields' in v;
export const isArray = (v: Value): v is Extract<Shape, { items: unknown }> & { raw: string } =>
  'items' in v;

/** parse reads JSON, which must be well-formed: the gateway has written it, or JSON.parse takes it. */
export function parse(text: string): Value {
  const p = new Parser(text);
  return p.value();
}

class Parser {
  private at = 0;
  constructor(private readonly text: string) {}

  private skip(): string {
    while (' \n\r\t'.includes(this.text[this.at] ?? '.')) this.at++;
    return this.text[this.at] ?? '';
  }

  private take(token: string): boolean {
    if (this.skip() !== token) return false;
    this.at++;
    return true;
  }

  private string(): string {
    this.skip();
    const from = this.at++;
    for (; this.text[this.at] !== '"'; this.at++) {
      if (this.at >= this.text.length) throw new SyntaxError('the JSON ends within a string');
      if (this.text[this.at] === '\\') this.at++;
    }
    return JSON.parse(this.text.slice(from, ++this.at)) as string;
  }

  value(): Value {
    this.skip();
    const from = this.at;
    const shape = this.shape();
    return Object.assign(shape, { raw: this.text.slice(from, this.at) });
  }

  private shape(): Shape {
    switch (this.skip()) {
      case '{':
        return this.object();
      case '[':
        return this.array();
      case '"':
        return { type: 'String', text: this.string() };
    }
    const word = /[^\s,\]}]*/y;
    word.lastIndex = this.at;
    const text = word.exec(this.text)![0];
    this.at += text.length;
    if (text === '') throw new SyntaxError('the JSON ends within a value');
    if (text === 'true' || text === 'false') return { type: 'Bool', text };
    return { type: text === 'null' ? 'Null' : 'Number', text };
  }

  private array(): Shape {
    const items: Value[] = [];
    for (this.take('['); !this.take(']'); this.take(',')) items.push(this.value());
    return { type: 'Array', items };
  }

  private object(): Shape {
    const fields: [string, Value][] = [];
    this.take('{');
    while (!this.take('}')) {
      const name = this.string();
      this.take(':');
      fields.push([name, this.value()]);
      this.take(',');
    }
    return special(fields) ?? { type: 'Object', fields };
  }
}

/** types has the types whose value is one text. */
const types: Record<string, string> = {
  $oid: 'ObjectId', $numberInt: 'Int32', $numberLong: 'Int64', $numberDouble: 'Double',
  $numberDecimal: 'Decimal128', $symbol: 'Symbol', $code: 'Code', $uuid: 'UUID',
};

/** special returns the value of an object that stands for a BSON type. */
function special(fields: [string, Value][]): Shape | undefined {
  const [[name, v] = ['', undefined], more] = fields;
  if (!v || !name.startsWith('$')) return undefined;
  const inner = (of: Value, key: string): string => {
    const found = isObject(of) ? of.fields.find(([k]) => k === key)?.[1] : undefined;
    return found && 'text' in found ? found.text : '';
  };
  if (!more && types[name] && 'text' in v) return { type: types[name], text: v.text };
  if (more && name !== '$code') return undefined;
  switch (name) {
    case '$date': {
      if (v.type === 'Int64' && 'text' in v) {
        const date = new Date(Number(v.text));
        return { type: 'Date', text: isNaN(+date) ? v.text : date.toISOString() };
      }
      const date = v.type === 'String' && 'text' in v ? timeOf(v.text) : undefined;
      return date && { type: 'Date', text: date.toISOString() };
    }
    case '$binary': {
      const subtype = inner(v, 'subType');
      const data = inner(v, 'base64');
      return subtype === '04' || subtype === '4'
        ? { type: 'UUID', text: uuid(data) }
        : { type: `Binary ${subtype}`, text: data };
    }
    case '$timestamp':
      return { type: 'Timestamp', text: `${inner(v, 't')}, ${inner(v, 'i')}` };
    case '$regularExpression':
      return { type: 'Regex', text: `/${inner(v, 'pattern')}/${inner(v, 'options')}` };
    case '$minKey':
      return { type: 'MinKey', text: '' };
    case '$maxKey':
      return { type: 'MaxKey', text: '' };
    case '$undefined':
      return { type: 'Undefined', text: '' };
    case '$code':
      return more && 'text' in v ? { type: 'Code with scope', text: v.text } : undefined;
    default:
      return undefined;
  }
}

/**
 * timeOf returns the time of a text of RFC 3339. JavaScript reads others, too, as times of the place
 * where the browser is; these are for the gateway to refuse.
 */
function timeOf(text: string): Date | undefined {
  const day = /^(\d{4}-\d\d-\d\d)T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.exec(text)?.[1];
  const exists = day && JSON.stringify(new Date(`${day}T00:00:00Z`)).startsWith(`"${day}`);
  const date = new Date(text);
  return exists && !isNaN(+date) ? date : undefined;
}

function uuid(base64: string): string {
  const hex = [...atob(base64)].map((c) => c.charCodeAt(0).toString(16).padStart(2, '0')).join('');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

/** field returns the value of a field. */
export const field = (v: Value | undefined, name: string): Value | undefined =>
  v && isObject(v) ? v.fields.find(([k]) => k === name)?.[1] : undefined;

/** short returns a value on one line, cut off. */
export function short(v: Value, most = 120): string {
  let out = '';
  const add = (x: Value): void => {
    if (out.length > most) return;
    if (isObject(x)) {
      out += '{';
      x.fields.forEach(([k, y], i) => {
        if (out.length <= most) out += `${i ? ', ' : ''}${k}: `;
        add(y);
      });
      out += '}';
    } else if (isArray(x)) {
      out += '[';
      x.items.forEach((y, i) => {
        if (out.length <= most && i) out += ', ';
        add(y);
      });
      out += ']';
    } else {
      out += x.type === 'String' ? JSON.stringify(x.text) : x.text || x.type;
    }
  };
  add(v);
  return out.length > most ? `${out.slice(0, most)}…` : out;
}

/** elementsOf returns the texts of an array's elements, as they are written. */
export function elementsOf(json: string): string[] {
  const out: string[] = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i < json.length; i++) {
    const c = json[i]!;
    if (c === '"') {
      for (i++; i < json.length && json[i] !== '"'; i++) if (json[i] === '\\') i++;
    } else if ('[{'.includes(c)) {
      if (depth++ === 0) from = i + 1;
    } else if (']}'.includes(c) ? --depth === 0 : c === ',' && depth === 1) {
      const text = json.slice(from, i).trim();
      if (text) out.push(text);
      from = i + 1;
    }
  }
  return out;
}
