import { fileURLToPath } from 'node:url';
import { SyntaxKind } from 'typescript/unstable/ast';
import { API, type Checker, type Symbol as Declared, SymbolFlags, type Type } from 'typescript/unstable/sync';
import { eventActionsSchema } from '../src/core/event.ts';
import { listMarks, PARTS, type Parts, writePages } from './pages.ts';

/*
 * The exports of the package with their types and docstrings, as the compiler reads them. Its API is marked unstable:
 * `test/unit/pages.test.ts` fails if an update changes what it says.
 */

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const CONFIG = `${ROOT}docs/api/tsconfig.json`;
const ENTRIES = ['src/process/index.ts', 'src/process/testing.ts'];

/** Types whose docstrings are the descriptions of a schema, because the OpenAPI document has them too. */
const SCHEMAS: Record<string, Record<string, { description?: string | undefined }>> = {
  EventActions: eventActionsSchema.shape,
};

/** Exports of another package. */
const OF_OTHERS = new Set(['z']);

const oneLine = (text: string) => text.replaceAll(/\s+/g, ' ').trim();

interface Member {
  name: string;
  /** The declaration: `name?: type`. */
  declared: string;
  doc: string;
}

class Exports {
  readonly #checker: Checker;
  readonly #exports: Map<string, Declared>;
  /** Names of exported objects by the names of their members, for types that are written without their name. */
  readonly #names = new Map<string, string>();

  constructor(checker: Checker, exports: Map<string, Declared>) {
    this.#checker = checker;
    this.#exports = exports;
    for (const [name, symbol] of exports) {
      if (!(symbol.flags & SymbolFlags.Interface)) continue;
      this.#names.set(this.#keysOf(checker.getDeclaredTypeOfSymbol(symbol)), name);
    }
  }

  get names(): string[] {
    return [...this.#exports.keys()];
  }

  #find(name: string): Declared {
    const symbol = this.#exports.get(name);
    if (!symbol) throw new Error(`The package exports no \`${name}\`.`);
    return symbol;
  }

  doc(name: string): string {
    return oneLine(this.#find(name).getDocumentationComment(this.#checker));
  }

  members(name: string): Member[] {
    const type = this.#checker.getDeclaredTypeOfSymbol(this.#find(name));
    const properties = this.#checker.getPropertiesOfType(type);
    const schema = SCHEMAS[name];
    if (schema) {
      return properties
        .map((property) => ({ name: property.name, doc: schema[property.name]?.description ?? '' }))
        .filter(({ doc }) => !/is kept|kept as sent|writes/.test(doc))
        .map((member) => ({ ...member, declared: `${member.name}?` }));
    }
    return properties.map((property) => ({
      name: property.name,
      declared: this.#declaration(property),
      doc: oneLine(property.getDocumentationComment(this.#checker)),
    }));
  }

  /** As it is written, or, of a member of a zod shape, as its type says. */
  #declaration(property: Declared): string {
    const [handle] = property.declarations;
    const isOptional = Boolean(property.flags & SymbolFlags.Optional);
    const name = `${property.name}${isOptional ? '?' : ''}`;
    if (handle?.kind === SyntaxKind.PropertySignature || handle?.kind === SyntaxKind.MethodSignature) {
      const text = oneLine((handle.resolve()?.getText() ?? '').replaceAll(/\/\*\*[^]*?\*\//g, ''));
      const type = text
        .replace(/^\w+\??/, '')
        .replace(/;$/, '')
        .replace(/ \| undefined$/, isOptional ? '' : '$&');
      return name + type.replace('( ', '(').replace(', )', ')');
    }
    const type = this.#checker.getTypeOfSymbol(property);
    return `${name}: ${type ? this.#show(type) : 'unknown'}`;
  }

  #keysOf(type: Type): string {
    return this.#checker
      .getPropertiesOfType(type)
      .map(({ name }) => name)
      .toSorted()
      .join();
  }

  /** A type in one line; an object that is exported stands under its name. */
  #show(type: Type): string {
    const checker = this.#checker;
    const text = oneLine(checker.typeToString(type, undefined, 1)).replaceAll('"', "'");
    if (!text.includes('{')) return text.replace(/ \| undefined$/, '');
    if (type.isUnionType()) {
      const parts = (type.getTypes() ?? []).map((part) => this.#show(part)).filter((part) => part !== 'undefined');
      return [...new Set(parts)].map((part) => (part.includes('=>') ? `(${part})` : part)).join(' | ');
    }
    if (checker.isArrayType(type) && type.isTypeReference()) {
      const [element] = checker.getTypeArguments(type);
      const shown = element ? this.#show(element) : 'unknown';
      return shown.includes(' ') && !shown.startsWith('{') ? `(${shown})[]` : `${shown}[]`;
    }
    if (type.getAliasSymbol()?.name === 'Record') {
      const value = type.getAliasTypeArguments().at(1);
      return `Record<string, ${value ? this.#show(value) : 'unknown'}>`;
    }
    return this.#names.get(this.#keysOf(type)) ?? text.replace(/; \}$/, ' }').replaceAll(' | undefined', '');
  }
}

/** Starts the compiler. `close` ends it. */
export function openMembers(): { parts: Parts; exports: Exports; close: () => void } {
  const api = new API({ cwd: ROOT });
  const [project] = api.updateSnapshot({ openProjects: [CONFIG] }).getProjects();
  if (!project) throw new Error(`${CONFIG} cannot be read.`);
  const { checker, program } = project;
  const found = new Map<string, Declared>();
  for (const entry of ENTRIES) {
    const file = program.getSourceFile(ROOT + entry);
    const module = file && checker.getSymbolAtLocation(file);
    for (const symbol of module ? checker.getExportsOfModule(module) : [])
      found.set(symbol.name, symbol.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);
  }
  const exports = new Exports(checker, found);
  const parts: Parts = {
    // `members: A, B` has all members of both, `members: A without B` those of A that B does not have.
    members: (about) => {
      const [names = '', without] = about.split(' without ');
      const left = new Set(without?.split(', ').flatMap((name) => exports.members(name).map((each) => each.name)));
      const members = names.split(', ').flatMap((name) => exports.members(name));
      const shown = new Map(members.filter(({ name }) => !left.has(name)).map((each) => [each.name, each]));
      return [...shown.values()].map(({ declared, doc }) => `- \`${declared}\`: ${doc}`).join('\n');
    },
    // What no list of members in the pages shows.
    'other exports': () => {
      const listed = new Set(listMarks().flatMap((mark) => mark.replace(/^members: /, '').split(/, | without /)));
      return exports.names
        .filter((name) => !listed.has(name) && !OF_OTHERS.has(name))
        .toSorted((one, other) => one.localeCompare(other, 'en'))
        .map((name) => `- \`${name}\`: ${exports.doc(name)}`)
        .join('\n');
    },
  };
  return { parts, exports, close: () => api.close() };
}

if (import.meta.main) {
  const members = openMembers();
  writePages({ ...PARTS, ...members.parts });
  members.close();
}
