import { TextDecoder } from 'node:util';

/** Returns a media type without parameters, in lower case: `Image/PNG; x=1` is `image/png`. */
export const toEssence = (mediaType: string): string => (mediaType.split(';', 1)[0] ?? '').trim().toLowerCase();

/** Types of `application/` that are text, beside those whose name ends with one of the suffixes below. */
const TEXTS = new Set(
  (
    'json xml yaml x-yaml yml x-yml toml x-toml csv x-csv tsv sql x-sql graphql markdown x-markdown javascript ' +
    'x-javascript ecmascript typescript x-typescript x-python x-ruby x-perl x-php x-httpd-php x-sh x-shellscript ' +
    'x-tex x-latex x-ndjson ndjson jsonl x-jsonl jsonlines x-jsonlines json-seq json5 x-www-form-urlencoded hcl ' +
    'x-subrip n-triples n-quads trig sparql-query sparql-update mbox'
  )
    .split(' ')
    .map((name) => `application/${name}`),
);

/** True for media whose bytes are text that a model reads as it is: any text, and data and code under other names. */
export function isTextType(mediaType: string): boolean {
  const essence = toEssence(mediaType);
  const hasCharset = /;\s*charset\s*=/i.test(mediaType);
  const isMedia = /^(?:image|audio|video|font)\//.test(essence) && !essence.endsWith('+xml');
  return (
    essence.startsWith('text/') ||
    essence.startsWith('message/') ||
    TEXTS.has(essence) ||
    /\+(?:json|xml|yaml|toml|csv)$/.test(essence) ||
    (hasCharset && !isMedia)
  );
}

/** Decodes bytes by their mark, else by the `charset` of their media type, else as UTF-8. */
export function decodeText(bytes: Uint8Array, mediaType: string): string {
  const label = /;\s*charset\s*=\s*"?([^";\s]+)/i.exec(mediaType)?.[1];
  const [first, second] = bytes;
  const mark =
    first === 0xff && second === 0xfe ? 'utf-16le' : first === 0xfe && second === 0xff ? 'utf-16be' : undefined;
  return toDecoder(mark ?? label ?? 'utf-8').decode(bytes);
}

function toDecoder(label: string): TextDecoder {
  try {
    return new TextDecoder(label);
  } catch {
    return new TextDecoder();
  }
}
