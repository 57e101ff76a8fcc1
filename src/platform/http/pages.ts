import { readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import express, { type RequestHandler, Router } from 'express';
import { RequestRefusedError } from './operation/request-errors.ts';

/** Files that a browser shows, beside the operations. */
export interface Pages {
  /** Their name on the page at `/`. */
  name: string;
  /** Path of all of them, with a slash at both ends. */
  home: string;
  handler: RequestHandler;
}

interface PageOptions {
  /** The folder with `index.html` and what it loads. */
  folder: string;
  /** The `content-security-policy` of the page. */
  policy: string;
  /**
   * Makes the page that is sent of `index.html` [as it is]. Its addresses are relative: what a proxy has taken off the
   * path of a request is not known here. Those that begin with `./` are of `home`, in every view.
   */
  toPage?: (html: string) => string;
  /** Further files, path below `home` → media type and text. */
  texts?: Record<string, [type: string, text: string]>;
  /** Names that change with the content of their file: those files are kept for a year. */
  hashedName: RegExp;
  /** True where the page shows one of its views for each path that is no file. */
  hasViews?: boolean;
}

const HTML = 'text/html; charset=utf-8';

/** Serves a folder below `home`, without credentials; `index.html` is read when it is first asked for. */
export function createPages(name: string, home: string, options: PageOptions): Pages {
  const { folder, policy, toPage = String, texts = {}, hashedName } = options;
  let html: string | undefined;
  const sendPage: RequestHandler = (request, response) => {
    html ??= toPage(readFileSync(join(folder, 'index.html'), 'utf8'));
    const depth = request.path.split('/').length - home.split('/').length;
    const page = Buffer.from(depth === 0 ? html : html.replaceAll('="./', `="${'../'.repeat(depth)}`));
    response.setHeader('content-security-policy', policy);
    response.writeHead(200, { 'content-type': HTML, 'content-length': page.length }).end(page);
  };
  /** Files whose name changes with their content are kept, the others are compared each time. */
  const setHeaders = (response: ServerResponse, path: string) =>
    response.setHeader('cache-control', hashedName.test(path) ? 'public, max-age=31536000, immutable' : 'no-cache');
  const router = Router({ caseSensitive: true, strict: true });
  const bare = home.slice(0, -1);
  router.all([bare, `${home}{*path}`], onlyRead);
  // The query stays: a link to a session is `/dev-ui?app=…&session=…`.
  router.get(bare, (request, response) => {
    // Relative, for a proxy that takes a path off: of its last segment.
    const location = `${bare.split('/').at(-1)}/${request.url.slice(request.path.length)}`;
    response.writeHead(307, { location }).end();
  });
  router.get([home, `${home}index.html`], sendPage);
  for (const [path, [type, text]] of Object.entries(texts)) router.get(home + path, sendText(type, text));
  router.use(home, express.static(folder, { index: false, redirect: false, setHeaders }));
  if (options.hasViews) router.get(`${home}{*path}`, sendPage);
  return { name, home, handler: router };
}

function sendText(type: string, text: string): RequestHandler {
  const body = Buffer.from(text);
  return (_request, response) => {
    response.writeHead(200, { 'content-type': type, 'content-length': body.length }).end(body);
  };
}

const onlyRead: RequestHandler = ({ method }, _response, next) => {
  if (method === 'GET' || method === 'HEAD') return next();
  throw new RequestRefusedError('method_not_allowed', 'Method Not Allowed', { allow: 'GET, HEAD' });
};
