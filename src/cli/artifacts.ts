import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { type GlobalOptions, sessionPath, withApi } from './api.ts';
import { print } from './output.ts';

const artifactsPath = (options: GlobalOptions, session: string) => `${sessionPath(options, session)}/artifacts`;

export const listArtifacts = (session: string, options: GlobalOptions): Promise<void> =>
  withApi(options, async (api) => {
    const names = await api.send<string[]>('GET', artifactsPath(options, session));
    print(options.json ? JSON.stringify(names) : names.join('\n'));
  });

export const getArtifact = (
  session: string,
  name: string,
  options: GlobalOptions & { version?: string },
): Promise<void> =>
  withApi(options, async (api) => {
    const query = new URLSearchParams({ alt: 'media', ...(options.version ? { version: options.version } : {}) });
    const path = `${artifactsPath(options, session)}/${encodeURIComponent(name)}?${query.toString()}`;
    const response = await api.open('GET', path);
    for await (const chunk of response.body ?? []) process.stdout.write(chunk);
  });

export const putArtifact = (
  session: string,
  file: string,
  options: GlobalOptions & { name?: string; type: string },
): Promise<void> =>
  withApi(options, async (api) => {
    const data = (await readFile(file)).toString('base64');
    const filename = options.name ?? basename(file);
    const artifact = { inlineData: { mimeType: options.type, data } };
    const saved = await api.send<{ version: number }>('POST', artifactsPath(options, session), { filename, artifact });
    print(options.json ? JSON.stringify(saved) : `${filename}, version ${saved.version}`);
  });
