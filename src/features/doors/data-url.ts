import { base64Error } from '../../core/base64.ts';

export function readDataUrl(url: string): { mimeType: string; data: string } | undefined {
  const [, mimeType = 'application/octet-stream', data] =
    /^data:([^;,]{1,256})?(?:;[^;,]{1,256})*;base64,(.*)$/is.exec(url) ?? [];
  return data === undefined || data === '' || base64Error(data) !== undefined ? undefined : { mimeType, data };
}
