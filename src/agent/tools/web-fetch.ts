import { createEgress, type EgressPolicy } from '../../platform/net/egress.ts';
import { type Tool, toParameters } from '../definition/tool.ts';

/** Maximum length of a page's text, in characters: what a page of 4 MiB can have. */
const MAX_TEXT = 4_194_304;
/** Length above which a page is kept for `read_result`, in characters of JSON. */
const MAX_IN_PROMPT = 55_000;
const TIMEOUT_MS = 20_000;
const READABLE = /^(?:text\/|application\/(?:[\w.+-]*\+)?(?:json|xml|xhtml\+xml|javascript)\b)/i;

/** Reads a page of at most 4 MiB within 20 seconds, at an address that the egress policy allows. */
export const webFetch = (policy: EgressPolicy): Tool => ({
  name: 'web_fetch',
  description:
    'Fetches a web page and gives its readable text. Use it for an address that the user names or that you know.',
  parameters: toParameters(
    { url: { type: 'string', maxLength: 2_000, description: 'Absolute address, https://…' } },
    'url',
  ),
  needsConfirmation: false,
  effect: 'none',
  limits: { maxResultCharacters: MAX_IN_PROMPT },
  async run(args, { signal, session }) {
    const url = URL.parse(String(args['url']));
    if (!url) throw new Error('This is not an absolute address.');
    const egress = createEgress(policy, session.userId);
    try {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
      const response = await egress.fetch(url, {
        signal: limit,
        headers: { accept: 'text/html, text/plain, */*;q=0.1' },
      });
      return await toPage(url, response);
    } catch (error) {
      if (error instanceof Error && error.name === 'TimeoutError')
        throw new Error(`${url.host} took too long.`, { cause: error });
      if (error instanceof TypeError) throw new Error(`${url.host} could not be reached.`, { cause: error });
      throw error;
    } finally {
      await egress.close();
    }
  },
});

async function toPage(url: URL, response: Response) {
  const type = response.headers.get('content-type') ?? 'text/plain';
  if (!response.ok) throw new Error(`${url.host} answered HTTP ${response.status}.`);
  if (!READABLE.test(type)) throw new Error(`${url.host} answered with ${type.split(';')[0]}, which is not text.`);
  const body = decode(await response.arrayBuffer(), type);
  const plain = { title: '', text: body.slice(0, MAX_TEXT), isCut: body.length > MAX_TEXT };
  const { title, text, isCut } = /html/i.test(type) ? await readHtml(body) : plain;
  return {
    url: url.href,
    ...(title === '' ? {} : { title }),
    text,
    ...(isCut ? { note: `The first ${MAX_TEXT} characters; the page has more.` } : {}),
  };
}

async function readHtml(html: string) {
  // The HTML parser is loaded with the first HTML page.
  const { htmlToText } = await import('./html-text.ts');
  return htmlToText(html, MAX_TEXT);
}

function decode(bytes: ArrayBuffer, type: string): string {
  const charset = /charset="?([\w-]+)/i.exec(type)?.[1] ?? 'utf-8';
  try {
    return new TextDecoder(charset).decode(bytes);
  } catch {
    return new TextDecoder().decode(bytes);
  }
}
