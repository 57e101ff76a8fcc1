import { toErrorText } from '../../../core/errors.ts';
import { nearestName } from '../../../core/nearest-name.ts';
import type { ValidationDetail } from '../operation/request-errors.ts';

/**
 * The runtime's own operations refuse unknown names, because a misspelt restriction must not be ignored. Operations of
 * third-party protocols accept them and list them in a response header.
 */

/** An unknown name, with the names that may have been meant. */
export interface UnknownName {
  loc: (string | number)[];
  input: unknown;
  /** The known names at the same path in the request. */
  known: Iterable<string>;
  /** The spelling that takes precedence, if both spellings of a name were sent. */
  counts?: string;
  /** True for a parameter with a single value that was sent several times. */
  isRepeated?: boolean;
  /** Parameter names that are valid in another part of the request (query or body), to name that part in the error. */
  elsewhere?: { known: Iterable<string>; place: string };
}

const REFUSAL = 'Extra inputs are not permitted';

/** Returns the validation error for an unknown name in pydantic's format, with the most similar known name. */
export function toExtraDetail(unknown: UnknownName): ValidationDetail {
  const { loc, input } = unknown;
  const place = loc.map((key) => (typeof key === 'string' ? toErrorText(key) : key));
  const reason = toReason(unknown, String(place.at(-1)));
  return { type: 'extra_forbidden', loc: place, msg: reason === undefined ? REFUSAL : `${REFUSAL}: ${reason}`, input };
}

function toReason({ loc, known, counts, isRepeated, elsewhere }: UnknownName, shown: string): string | undefined {
  if (isRepeated) return `\`${shown}\` has one value and was sent several times`;
  if (counts !== undefined) return `\`${shown}\` is another spelling of \`${counts}\`, which was sent too`;
  const name = String(loc.at(-1));
  const near = nearestName(name, known) ?? findKin(name, known);
  if (near !== undefined) return `\`${shown}\` is not known here; did you mean \`${near}\`?`;
  const other = elsewhere && nearestName(name, elsewhere.known);
  return other === undefined
    ? undefined
    : `\`${shown}\` is not known here; \`${other}\` belongs to ${elsewhere?.place}`;
}

/** The words of a name that are long enough to mean something: `user` of `userId` and `forUser`. */
const toWords = (name: string) =>
  name
    .replaceAll(/([A-Z])/g, '_$1')
    .toLowerCase()
    .split(/[^a-z]+/)
    .filter((word) => word.length > 3);

/** The only known name that shares a word with the sent one. */
function findKin(sent: string, known: Iterable<string>): string | undefined {
  const words = new Set(toWords(sent.slice(0, MAX_NAME_LENGTH)));
  const kin = [...known].filter((name) => toWords(name).some((word) => words.has(word)));
  return kin.length === 1 ? kin[0] : undefined;
}

/**
 * Maximum number of names in `X-Ignored-Members`, and of their characters: browsers and proxies refuse long headers.
 */
const MAX_NAMES = 32;
const MAX_NAME_LENGTH = 64;

/** Returns the value of the header `X-Ignored-Members`: the names, comma-separated. */
export function toHeaderText(unknown: readonly UnknownName[]): string {
  const names = new Set(unknown.map(({ loc }) => toToken(String(loc.at(-1)))));
  const shown = [...names].slice(0, MAX_NAMES);
  return [...shown, ...(names.size > MAX_NAMES ? ['...'] : [])].join(', ');
}

/** Percent-encodes a name, because a header allows only plain characters; long names are cut. */
const toToken = (name: string) =>
  encodeURIComponent(name.slice(0, MAX_NAME_LENGTH).toWellFormed()).slice(0, MAX_NAME_LENGTH).replace(/%.?$/, '');

/** Lists the member names of a body that was sent to an operation without a body. */
export function unknownBody(sent: unknown, query: readonly string[]): UnknownName[] {
  if (sent === null) return [];
  const elsewhere = { known: query, place: 'the query' };
  if (typeof sent !== 'object' || Array.isArray(sent)) return [{ loc: ['body'], input: sent, known: [] }];
  return Object.entries(sent).map(([name, input]) => ({ loc: ['body', name], input, known: [], elsewhere }));
}
