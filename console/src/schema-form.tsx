import { createContext, type FormEvent, type ReactNode, use, useId, useState } from 'react';
import { Button } from 'react-aria-components';
import { ApiError } from './api.ts';
import { Problem } from './ui.tsx';

/** As much of JSON Schema as makes a field. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  title?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  format?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
}
/** The schemas of a document, by name. */
export type Schemas = Record<string, Schema>;

const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
const typeOf = ({ type }: Schema) => (Array.isArray(type) ? type.find((each) => each !== 'null') : type);
const isNull = ({ type }: Schema) => type === 'null';

/** A schema without references, and without the choice of null: what is left out is left out. */
function resolve(schema: Schema, schemas: Schemas): Schema {
  const { $ref, anyOf, ...own } = schema;
  if ($ref !== undefined) return resolve({ ...schemas[$ref.split('/').at(-1) ?? ''], ...own }, schemas);
  const choices = anyOf?.filter((each) => !isNull(each));
  const [only] = choices ?? [];
  return only && choices?.length === 1 ? resolve({ ...only, ...own }, schemas) : schema;
}

/** Objects of which each has a member that names it: `type` of a schedule. */
function variantsOf({ oneOf }: Schema): { name: string; variant: Schema }[] | undefined {
  const variants = oneOf?.map((variant) => {
    const named = Object.values(variant.properties ?? {}).find((member) => member.const !== undefined);
    return { name: textOf(named?.const), variant };
  });
  return variants?.every(({ variant }) => variant.properties) ? variants : undefined;
}

/** What the fields of a form share: the schemas that they refer to, and what was refused, by path. */
const FormContext = createContext<{ schemas: Schemas; refused: ReadonlyMap<string, string> }>({
  schemas: {},
  refused: new Map(),
});

interface SchemaFormProps {
  schema: object | undefined;
  /** What `$ref` names. */
  schemas?: Schemas;
  /** The words of the button. */
  action: string;
  /** True where the answer is given for a person. */
  asksWho?: boolean;
  /** Members that are seldom needed. */
  folded?: string[];
  isBusy?: boolean;
  /** What the service said to the last answer: shown beside its field where it names one. */
  error?: Error | null;
  onAnswer: (answer: Record<string, unknown> | undefined, by: string | undefined) => void;
}

/** True for a schema of an object without members: there is nothing to fill in. */
export function isPlain(schema: object): boolean {
  const { properties, additionalProperties = false, patternProperties } = schema as Schema & Record<string, unknown>;
  const isEmpty = properties !== undefined && Object.keys(properties).length === 0;
  return isEmpty && additionalProperties === false && patternProperties === undefined;
}

/** A form made of a schema: a field for each member; the service checks what comes of it. */
export function SchemaForm(props: SchemaFormProps) {
  const { schema, schemas = {}, action, asksWho = false, folded = [], isBusy = false, error, onAnswer } = props;
  const [problem, setProblem] = useState<Error>();
  const whole = (schema ?? {}) as Schema;
  const { properties = {}, required = [] } = whole;
  const names = Object.keys(properties);
  const isJson = schema !== undefined && names.length === 0 && !isPlain(schema);
  const refused = new Map(error instanceof ApiError ? error.refused : []);
  const isAtFields = refused.size > 0 && [...refused.keys()].every((path) => names.includes(path.split('/')[0] ?? ''));
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const values = new FormData(event.currentTarget);
    const single = (name: string) => textIn(values, name);
    try {
      const by = single(' by');
      if (isJson) onAnswer(toJson(single(' json') ?? '{}', 'The answer') as Record<string, unknown>, by);
      else onAnswer(schema === undefined ? undefined : (toObject('', whole, values, schemas) ?? {}), by);
      setProblem(undefined);
    } catch (reason) {
      setProblem(reason as Error);
    }
  };
  const field = (name: string) => (
    <Field key={name} path={name} name={name} schema={properties[name] ?? {}} isRequired={required.includes(name)} />
  );
  const rest = names.filter((name) => folded.includes(name));
  const isRestRefused = rest.some((name) => [...refused.keys()].some((path) => path.split('/')[0] === name));
  return (
    <form className="form" onSubmit={submit}>
      <FormContext value={{ schemas, refused }}>
        {names.filter((name) => !folded.includes(name)).map(field)}
        {rest.length > 0 && (
          <details key={String(isRestRefused)} open={isRestRefused}>
            <summary>More</summary>
            <div className="form">{rest.map(field)}</div>
          </details>
        )}
      </FormContext>
      {isJson && (
        <label>
          Answer, as JSON
          <textarea name=" json" rows={4} defaultValue="{}" spellCheck={false} />
        </label>
      )}
      {asksWho && (
        <label>
          Who answers, if not the user of the session
          <input name=" by" maxLength={256} />
        </label>
      )}
      {problem && <Problem error={problem} />}
      {error && <Problem error={isAtFields ? new ApiError(0, 'What was refused is marked above.') : error} />}
      <div>
        <Button type="submit" className="primary" isDisabled={isBusy}>
          {action}
        </Button>
      </div>
    </form>
  );
}

interface FieldProps {
  /** Its place in the answer, with slashes: the name of its input. */
  path: string;
  name: string;
  schema: Schema;
  isRequired: boolean;
}

function Field({ path, name, schema: written, isRequired }: FieldProps) {
  const { schemas, refused } = use(FormContext);
  const id = useId();
  const schema = resolve(written, schemas);
  const members =
    schema.properties ?? Object.assign({}, ...(variantsOf(schema) ?? []).map(({ variant }) => variant.properties));
  const why = whyOf(refused, path, isListOfObjects(schema, schemas) ? undefined : Object.keys(members as object));
  const label = (
    <>
      {schema.title ?? name}
      {isRequired ? ' (required)' : ''}
    </>
  );
  const notes = (
    <>
      {schema.description && <span className="hint">{schema.description}</span>}
      {why && (
        <span className="refused" id={id} role="alert">
          {why}
        </span>
      )}
    </>
  );
  const group = (content: ReactNode) => (
    <fieldset>
      <legend>{label}</legend>
      {notes}
      {content}
    </fieldset>
  );
  // What was refused of a row stands at the row.
  if (variantsOf(schema)) return group(<Variants path={path} schema={schema} isRequired={isRequired} />);
  if (schema.properties) return group(<Members path={path} schema={schema} />);
  if (isListOfObjects(schema, schemas)) return group(<Rows path={path} schema={schema} />);
  if (typeOf(schema) === 'boolean')
    return (
      <div>
        <label className="check">
          <input type="checkbox" name={path} defaultChecked={schema.default === true} />
          {label}
        </label>
        {notes}
      </div>
    );
  return (
    <label>
      {label}
      {notes}
      <Input path={path} schema={schema} isRequired={isRequired} problem={why === undefined ? undefined : id} />
    </label>
  );
}

/**
 * Why a value was refused: it, or something in it that has no field of its own.
 * @param members - what has fields below it; `undefined` for a list, whose rows say themselves what is wrong
 */
function whyOf(refused: ReadonlyMap<string, string>, path: string, members: string[] | undefined): string | undefined {
  const reasons = [...refused].flatMap(([place, why]) => {
    const below = place.startsWith(`${path}/`) ? place.slice(path.length + 1).split('/')[0] : undefined;
    return place === path || (below !== undefined && members?.includes(below) === false) ? [why] : [];
  });
  return reasons.length > 0 ? reasons.join('\n') : undefined;
}

function Members({ path, schema: { properties = {}, required = [] } }: { path: string; schema: Schema }) {
  return Object.entries(properties)
    .filter(([, member]) => member.const === undefined)
    .map(([name, member]) => (
      <Field key={name} path={`${path}/${name}`} name={name} schema={member} isRequired={required.includes(name)} />
    ));
}

/** A choice of objects, and the fields of the chosen one. */
function Variants({ path, schema, isRequired }: { path: string; schema: Schema; isRequired: boolean }) {
  const variants = variantsOf(schema) ?? [];
  const [chosen, setChosen] = useState(isRequired ? variants[0]?.name : undefined);
  const variant = variants.find(({ name }) => name === chosen)?.variant;
  return (
    <div className="form">
      <label>
        kind
        <select name={`${path} kind`} value={chosen ?? ''} onChange={({ target }) => setChosen(target.value)}>
          {!isRequired && <option value="">–</option>}
          {variants.map(({ name }) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      {variant && <Members key={chosen} path={path} schema={variant} />}
    </div>
  );
}

const isListOfObjects = (schema: Schema, schemas: Schemas) =>
  typeOf(schema) === 'array' && schema.items !== undefined && resolve(schema.items, schemas).properties !== undefined;

/** A list of objects: a row of fields for each. */
function Rows({ path, schema }: { path: string; schema: Schema }) {
  const { schemas } = use(FormContext);
  const [rows, setRows] = useState([0]);
  const item = resolve(schema.items ?? {}, schemas);
  return (
    <>
      {rows.map((row, index) => (
        <div key={row} className="form-row">
          <input type="hidden" name={`${path} row`} value={row} />
          <RowContext path={path} row={row} index={index}>
            <RowProblem path={`${path}/${row}`} members={Object.keys(item.properties ?? {})} />
            <Members path={`${path}/${row}`} schema={item} />
          </RowContext>
          <Button
            aria-label={`Remove ${index + 1} of ${path}`}
            onPress={() => setRows(rows.filter((each) => each !== row))}
          >
            Remove
          </Button>
        </div>
      ))}
      <div>
        <Button onPress={() => setRows([...rows, Math.max(-1, ...rows) + 1])}>Add</Button>
      </div>
    </>
  );
}

/** What was refused of the n-th row belongs to its fields, which keep their names when a row before them goes. */
function RowContext(props: { path: string; row: number; index: number; children: ReactNode }) {
  const { path, row, index, children } = props;
  const { schemas, refused } = use(FormContext);
  const before = `${path}/${index}`;
  const own = [...refused].flatMap(([place, why]): [string, string][] =>
    place === before || place.startsWith(`${before}/`) ? [[`${path}/${row}${place.slice(before.length)}`, why]] : [],
  );
  return <FormContext value={{ schemas, refused: new Map(own) }}>{children}</FormContext>;
}

function RowProblem({ path, members }: { path: string; members: string[] }) {
  const why = whyOf(use(FormContext).refused, path, members);
  return (
    why !== undefined && (
      <p className="refused" role="alert">
        {why}
      </p>
    )
  );
}

interface InputProps {
  path: string;
  schema: Schema;
  isRequired: boolean;
  /** The id of what says why it was refused. */
  problem: string | undefined;
}

function Input({ path, schema, isRequired, problem }: InputProps) {
  const type = typeOf(schema);
  const shared = {
    name: path,
    required: isRequired,
    defaultValue: schema.default === undefined ? undefined : textOf(schema.default),
    'aria-invalid': problem !== undefined,
    'aria-describedby': problem,
  };
  if (schema.enum)
    return (
      <select {...shared} defaultValue={shared.defaultValue ?? ''}>
        <option value="">–</option>
        {schema.enum
          .filter((value) => value !== null)
          .map((value) => (
            <option key={textOf(value)}>{textOf(value)}</option>
          ))}
      </select>
    );
  if (type === 'number' || type === 'integer')
    return (
      <input
        {...shared}
        type="number"
        step={type === 'integer' ? 1 : 'any'}
        min={schema.minimum}
        max={schema.maximum}
      />
    );
  if (type === 'array' && isSimple(schema.items)) return <input {...shared} placeholder="with commas" />;
  if (type === 'string' && ((schema.maxLength ?? Infinity) <= 256 || schema.format !== undefined))
    return <input {...shared} maxLength={schema.maxLength} />;
  const isText = type === 'string';
  return <textarea {...shared} rows={isText ? 2 : 4} placeholder={isText ? '' : 'JSON'} maxLength={schema.maxLength} />;
}

const isSimple = (schema: Schema | undefined) => /^(string|integer|number)$/.test((schema && typeOf(schema)) ?? '');

const textIn = (values: FormData, name: string): string | undefined => {
  const value = values.get(name);
  return (typeof value === 'string' && value.trim()) || undefined;
};

function toObject(path: string, { properties = {} }: Schema, values: FormData, schemas: Schemas) {
  const entries = Object.entries(properties).flatMap(([name, member]): [string, unknown][] => {
    const value = toValue(path === '' ? name : `${path}/${name}`, name, resolve(member, schemas), values, schemas);
    return value === undefined ? [] : [[name, value]];
  });
  return entries.length === 0 ? undefined : (Object.fromEntries(entries) as Record<string, unknown>);
}

/** What a field holds; `undefined` where it is empty. */
function toValue(path: string, name: string, schema: Schema, values: FormData, schemas: Schemas): unknown {
  if (schema.const !== undefined) return schema.const;
  const variants = variantsOf(schema);
  if (variants) {
    const chosen = variants.find((each) => each.name === textIn(values, `${path} kind`))?.variant;
    return chosen && toObject(path, chosen, values, schemas);
  }
  if (schema.properties) return toObject(path, schema, values, schemas);
  if (isListOfObjects(schema, schemas)) {
    const item = resolve(schema.items ?? {}, schemas);
    return values
      .getAll(`${path} row`)
      .flatMap((row) => toObject(`${path}/${row as string}`, item, values, schemas) ?? []);
  }
  if (typeOf(schema) === 'boolean') return values.has(path);
  const text = textIn(values, path);
  return text === undefined ? undefined : ofText(name, schema, text);
}

function ofText(name: string, schema: Schema, text: string): unknown {
  const chosen = schema.enum?.find((each) => textOf(each) === text);
  if (chosen !== undefined) return chosen;
  const type = typeOf(schema);
  if (type === 'string') return text;
  if (type === 'number' || type === 'integer') return Number(text);
  if (type === 'array' && isSimple(schema.items))
    return text
      .split(',')
      .map((word) => word.trim())
      .filter(Boolean)
      .map((word) => (schema.items && typeOf(schema.items) !== 'string' ? Number(word) : word));
  return toJson(text, schema.title ?? name);
}

function toJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${what} is no JSON.`);
  }
}
