import { readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import express, { type RequestHandler, Router } from 'express';
import { RequestRefusedError } from './request-errors.ts';

export interface Pages {
  /** Name of the pages in links on the page at `/`. */
  name: string;
  /** Path prefix of the files, with a slash at both ends. */
  home: string;
  handler: RequestHandler;
}

interface PageOptions {
  /** The folder with `index.html` and the files that it loads. */
  folder: string;
  /** The page's `content-security-policy`. */
  policy: string;
  /**
   * Adapts `index.html`, whose links are relative, because a proxy may have removed a prefix of the path. A link that
   * begins with `./` is relative to `home` in every view. Default: unchanged.
   */
  toPage?: (html: string) => string;
  /** Additional files in memory: path below `home` → media type and text. */
  texts?: Record<string, [type: string, text: string]>;
  /** Matches file names that contain a hash of the content; browsers cache such files for a year. */
  hashedName: RegExp;
  /** True if every path without a file is a view of the page and gets `index.html`. */
  hasViews?: boolean;
}

const HTML = 'text/html; charset=utf-8';

/** Serves a folder below `home` without credentials; `index.html` is read with the first request for it. */
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
  /** Lets browsers cache files with a hash in their name, and revalidate all others each time. */
  const setHeaders = (response: ServerResponse, path: string) =>
    response.setHeader('cache-control', hashedName.test(path) ? 'public, max-age=31536000, immutable' : 'no-cache');
  const router = Router({ caseSensitive: true, strict: true });
  const bare = home.slice(0, -1);
  router.all([bare, `${home}{*path}`], onlyRead);
  // The redirect keeps the query, because links to a session have one: `/dev-ui?app=…&session=…`.
  router.get(bare, (request, response) => {
    // The redirect is relative to the last segment, because a proxy may have removed the segments before it.
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
