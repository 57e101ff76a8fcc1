import { TextDecoder } from 'node:util';

/** Returns a media type in lower case without parameters: `Image/PNG; x=1` becomes `image/png`. */
export const toEssence = (mediaType: string): string => (mediaType.split(';', 1)[0] ?? '').trim().toLowerCase();

/** Media types `application/…` that are text, apart from those with a suffix such as `+json`. */
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

/** True if a model can read the content as text: text types, and data and source code under other media types. */
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

/** Decodes text by its byte order mark, else by the `charset` of the media type, else as UTF-8. */
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
