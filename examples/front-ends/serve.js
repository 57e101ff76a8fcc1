import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

/*
 * The backend of the two pages. It serves them, and passes on what they ask of the runtime: it alone knows the key, and
 * says whose sessions they are. A page never does: anybody can change what a page sends.
 */
const { PORT = '5173', RUNTIME_URL = 'http://127.0.0.1:8000', AGENT_RUNTIME_KEY } = process.env;
const here = (name) => fileURLToPath(new URL(name, import.meta.url));

const PAGES = new Map([
  ['/', 'chat'],
  ['/agent', 'agent'],
]);
/** What the pages may ask of the runtime. */
const PASSED_ON = /^\/(?:ai-sdk|ag-ui)\/harness_agent(?:\/|$)/;
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const { outputFiles } = await build({
  entryPoints: [...PAGES.values()].map((name) => here(`${name}.jsx`)),
  bundle: true,
  write: false,
  outdir: '/',
  format: 'esm',
  jsx: 'automatic',
  minify: true,
  define: { 'process.env.NODE_ENV': '"production"' },
});
const files = new Map(
  outputFiles.map(({ path, contents }) => [path, { type: 'text/javascript', body: Buffer.from(contents) }]),
);
files.set('/style.css', { type: 'text/css', body: await readFile(here('style.css')) });
for (const [path, name] of PAGES) {
  const page =
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Agent runtime</title>' +
    '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">' +
    `<link rel="stylesheet" href="/style.css"><div id="root"></div><script type="module" src="/${name}.js"></script>`;
  files.set(path, { type: 'text/html', body: Buffer.from(page) });
}

/** Returns the user who is logged in. Yours looks at a session of its own. */
const findUser = (_request) => 'user';

async function passOn(request, response, { pathname, searchParams }) {
  const url = new URL(pathname, RUNTIME_URL);
  url.search = new URLSearchParams({ ...Object.fromEntries(searchParams), user_id: findUser(request) });
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const left = new AbortController();
  response.on('close', () => left.abort());
  const answer = await fetch(url, {
    method: request.method,
    headers: {
      'content-type': request.headers['content-type'] ?? 'application/json',
      accept: request.headers.accept ?? '*/*',
      ...(request.headers['x-double-texting'] === 'steer' ? { 'x-double-texting': 'steer' } : {}),
      ...(AGENT_RUNTIME_KEY ? { authorization: `Bearer ${AGENT_RUNTIME_KEY}` } : {}),
    },
    body: request.method === 'POST' ? Buffer.concat(chunks) : null,
    signal: left.signal,
  });
  const kept = ['content-type', 'x-vercel-ai-ui-message-stream', 'x-workflow-run-id', 'x-next-cursor'];
  const headers = kept.flatMap((name) => (answer.headers.has(name) ? [[name, answer.headers.get(name)]] : []));
  response.writeHead(answer.status, { ...Object.fromEntries(headers), 'cache-control': 'no-cache' });
  if (answer.body) await pipeline(Readable.fromWeb(answer.body), response);
  else response.end();
}

async function handle(request, response) {
  const url = new URL(request.url, 'http://localhost');
  if (PASSED_ON.test(url.pathname)) return passOn(request, response, url);
  const { type, body } = files.get(url.pathname) ?? {};
  if (!body) return response.writeHead(404).end();
  const headers = { 'content-type': `${type}; charset=utf-8`, 'content-security-policy': POLICY };
  return response.writeHead(200, { ...headers, 'x-content-type-options': 'nosniff' }).end(body);
}

const server = createServer((request, response) => {
  handle(request, response).catch((error) => {
    // A reader that has left is nobody to tell.
    if (!response.destroyed && !response.headersSent)
      response.writeHead(502).end(`The runtime is away: ${error.message}`);
    else response.destroy();
  });
});
server.listen(Number(PORT), '127.0.0.1');
await once(server, 'listening');
console.log(`http://127.0.0.1:${server.address().port} (AI SDK) and /agent (AG-UI), on ${RUNTIME_URL}`);
