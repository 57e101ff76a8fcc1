import { type FormEvent, useState } from 'react';
import { Button } from 'react-aria-components';
import { fieldsOf, Problem } from './ui.tsx';

/** As much of JSON Schema as makes a field. */
interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  enum?: unknown[];
  default?: unknown;
  minimum?: number;
  maximum?: number;
  maxLength?: number;
  properties?: Record<string, Schema>;
  required?: string[];
}

const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
const typeOf = ({ type }: Schema) => (Array.isArray(type) ? type.find((each) => each !== 'null') : type);

interface SchemaFormProps {
  schema: object | undefined;
  /** The words of the button. */
  action: string;
  /** True where the answer is given for a person. */
  asksWho: boolean;
  onAnswer: (answer: Record<string, unknown> | undefined, by: string | undefined) => void;
}

/** A form made of the schema of an answer: a field for each member; the service checks what comes of it. */
export function SchemaForm({ schema, action, asksWho, onAnswer }: SchemaFormProps) {
  const [problem, setProblem] = useState<Error>();
  const { properties = {}, required = [] } = (schema ?? {}) as Schema;
  const fields = Object.entries(properties);
  const isJson = schema !== undefined && fields.length === 0;
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const values = fieldsOf(form);
    try {
      const by = values[' by'];
      if (isJson) onAnswer(toJson(values[' json'] ?? '{}', 'The answer') as Record<string, unknown>, by);
      else onAnswer(schema === undefined ? undefined : toAnswer(fields, values), by);
      setProblem(undefined);
    } catch (error) {
      setProblem(error as Error);
    }
  };
  return (
    <form className="form" onSubmit={submit}>
      {fields.map(([name, field]) => (
        <Field key={name} name={name} schema={field} isRequired={required.includes(name)} />
      ))}
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
      <div>
        <Button type="submit" className="primary">
          {action}
        </Button>
      </div>
    </form>
  );
}

function Field({ name, schema, isRequired }: { name: string; schema: Schema; isRequired: boolean }) {
  const label = (
    <>
      {schema.title ?? name}
      {isRequired ? ' (required)' : ''}
    </>
  );
  const hint = schema.description && <span className="hint">{schema.description}</span>;
  const start = schema.default === undefined ? undefined : textOf(schema.default);
  if (typeOf(schema) === 'boolean')
    return (
      <div>
        <label className="check">
          <input type="checkbox" name={name} defaultChecked={schema.default === true} />
          {label}
        </label>
        {hint}
      </div>
    );
  return (
    <label>
      {label}
      {hint}
      <Input name={name} schema={schema} start={start} isRequired={isRequired} />
    </label>
  );
}

function Input(props: { name: string; schema: Schema; start: string | undefined; isRequired: boolean }) {
  const { name, schema, start, isRequired } = props;
  const type = typeOf(schema);
  if (schema.enum)
    return (
      <select name={name} required={isRequired} defaultValue={start ?? ''}>
        <option value="">–</option>
        {schema.enum.map((value) => (
          <option key={textOf(value)}>{textOf(value)}</option>
        ))}
      </select>
    );
  if (type === 'number' || type === 'integer')
    return (
      <input
        name={name}
        type="number"
        step={type === 'integer' ? 1 : 'any'}
        min={schema.minimum}
        max={schema.maximum}
        required={isRequired}
        defaultValue={start}
      />
    );
  if (type === 'string' && (schema.maxLength ?? Infinity) <= 80)
    return <input name={name} maxLength={schema.maxLength} required={isRequired} defaultValue={start} />;
  const isText = type === 'string';
  return (
    <textarea
      name={name}
      rows={isText ? 2 : 4}
      required={isRequired}
      defaultValue={start}
      placeholder={isText ? '' : 'JSON'}
    />
  );
}

function toAnswer(fields: [string, Schema][], values: Record<string, string | undefined>): Record<string, unknown> {
  const entries = fields.flatMap(([name, schema]): [string, unknown][] => {
    const value = values[name];
    if (typeOf(schema) === 'boolean') return [[name, value !== undefined]];
    return value === undefined ? [] : [[name, toValue(name, schema, value)]];
  });
  return Object.fromEntries(entries);
}

function toValue(name: string, schema: Schema, value: string): unknown {
  const chosen = schema.enum?.find((each) => textOf(each) === value);
  if (chosen !== undefined) return chosen;
  const type = typeOf(schema);
  if (type === 'string') return value;
  return type === 'number' || type === 'integer' ? Number(value) : toJson(value, schema.title ?? name);
}

function toJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${what} is no JSON.`);
  }
}
