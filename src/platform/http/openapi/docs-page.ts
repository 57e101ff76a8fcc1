import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import express, { type RequestHandler, Router } from 'express';
import { RequestRefusedError } from '../operation/request-errors.ts';

/**
 * Content security policy that allows inline styles and data URLs, which swagger-ui uses, but nothing of other origins.
 */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
  "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

const PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Agent Runtime HTTP Interface</title>
    <link rel="icon" href="docs/favicon-32x32.png">
    <link rel="stylesheet" href="docs/swagger-ui.css">
  </head>
  <body>
    <div id="swagger-ui"></div>
    <script src="docs/swagger-ui-bundle.js"></script>
    <script src="docs/start.js"></script>
  </body>
</html>
`;

interface About {
  version: string;
  /** The mode of access, as the setting `AUTH_MODE` spells it. */
  mode: string;
  /** Static pages such as the development UI; the page at `/` links to them, prominently to the first. */
  pages: { name: string; home: string }[];
}

const DOCUMENTS = [
  ['docs', 'Operations'],
  ['openapi.json', 'OpenAPI'],
  ['health', 'Health'],
];
const toItem = ([href, name]: string[]) => `<li><a href="${href}">${name}</a></li>`;

/** The page at `/`, for people who open the service's address. It shows nothing that needs a credential. */
const startPage = ({ version, mode, pages }: About) => `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Agent runtime</title>
    <link rel="icon" href="docs/favicon-32x32.png">
    <style>
      :root { color-scheme: light dark; background: light-dark(#fff, #14171c); color: light-dark(#1a1d23, #e8eaed); }
      body { max-width: 40rem; margin: 12vh auto; padding: 0 1.25rem; font: 1rem/1.5 system-ui, sans-serif; }
      h1 { margin: 0; font-size: 1.6rem; }
      ul { margin: 1.5rem 0; padding: 0; list-style: none; }
      a { display: block; padding: .6rem .9rem; margin: .5rem 0; color: light-dark(#0b57d0, #8ab4f8);
        border: 1px solid #8886; border-radius: 8px; text-decoration: none; }
      a:hover, a:focus-visible { border-color: currentcolor; }
    </style>
  </head>
  <body>
    <h1>Agent runtime ${version}</h1>
    <p>An HTTP service that hosts agents, in mode ${mode}.</p>
    <ul>
      ${[...pages.map(({ name, home }) => [home.slice(1), name]), ...DOCUMENTS].map(toItem).join('\n      ')}
    </ul>
  </body>
</html>
`;

/** Starts swagger-ui; a separate file, because the page's policy forbids inline scripts. */
const START = `SwaggerUIBundle({ url: 'openapi.json', dom_id: '#swagger-ui', deepLinking: true });\n`;

const ASSETS = ['favicon-32x32.png', 'swagger-ui.css', 'swagger-ui-bundle.js'];

/** Serves `/`, `/openapi.json`, and `/docs`, an offline page of the OpenAPI document. They need no credential. */
export function docsPage(document: () => object, about: About): RequestHandler {
  let text: Buffer | undefined;
  const folder = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));
  const router = Router({ caseSensitive: true, strict: true });
  router.get('/openapi.json', (_request, response) => {
    text ??= Buffer.from(JSON.stringify(document()));
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length }).end(text);
  });
  router.get('/', page('text/html; charset=utf-8', startPage(about)));
  router.get('/docs', page('text/html; charset=utf-8', PAGE));
  router.get('/docs/start.js', page('text/javascript; charset=utf-8', START));
  router.all(['/', '/openapi.json', '/docs'], () => {
    throw new RequestRefusedError('method_not_allowed', 'Method Not Allowed', { allow: 'GET, HEAD' });
  });
  for (const name of ASSETS) router.get(`/docs/${name}`, asset(folder, name));
  return router;
}

function page(type: string, text: string): RequestHandler {
  return (_request, response) => {
    response.setHeader('content-security-policy', PAGE_POLICY);
    response.writeHead(200, { 'content-type': type, 'content-length': Buffer.byteLength(text) }).end(text);
  };
}

function asset(folder: string, name: string): RequestHandler {
  const files = express.static(folder, { index: false, maxAge: '1h', redirect: false });
  return (request, response, next) => {
    request.url = `/${name}`;
    response.removeHeader('cache-control');
    files(request, response, next);
  };
}
