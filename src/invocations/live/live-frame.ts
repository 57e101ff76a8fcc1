import { z } from 'zod';
import { type Content, contentSchema } from '../../core/content.ts';
import { base64Error } from '../../core/base64.ts';
import { findInexact } from '../../core/exact-json.ts';
import type { LiveInput } from '../../agent/definition/live.ts';

const blobSchema = z
  .looseObject({ mime_type: z.string().nullish(), mimeType: z.string().nullish(), data: z.string().default('') })
  .refine(({ data }) => base64Error(data) === undefined, { path: ['data'], message: 'not base64' });

/** One text frame from a client of a live session; unknown members are ignored. */
const liveFrameSchema = z.looseObject({
  content: contentSchema.nullish(),
  blob: blobSchema.nullish(),
  activity_start: z.unknown().optional(),
  activity_end: z.unknown().optional(),
  close: z.boolean().nullish(),
});

/** The request in a frame. */
export type LiveFrame =
  | { kind: 'content'; content: Content }
  | { kind: 'media'; input: LiveInput }
  | { kind: 'close' | 'nothing' }
  | { kind: 'invalid'; error: string };

/**
 * Reads a frame. Of several members the first of close, activity_start, activity_end, blob, content counts (ADK's
 * order); `{}` asks for nothing.
 */
export function toLiveFrame(text: string): LiveFrame {
  let sent: unknown;
  try {
    sent = JSON.parse(text);
  } catch {
    return { kind: 'invalid', error: 'The frame is not valid JSON.' };
  }
  const inexact = findInexact(text);
  if (inexact)
    return { kind: 'invalid', error: `The frame is not valid at ${inexact.path.join('.')}: ${inexact.reason}.` };
  const parsed = liveFrameSchema.safeParse(sent);
  if (!parsed.success) return { kind: 'invalid', error: firstIssue(parsed.error) };
  const { content, blob, close, activity_start: start, activity_end: end } = parsed.data;
  if (close === true) return { kind: 'close' };
  if (start != null) return { kind: 'media', input: { kind: 'activityStart' } };
  if (end != null) return { kind: 'media', input: { kind: 'activityEnd' } };
  if (!blob) return content ? { kind: 'content', content } : { kind: 'nothing' };
  // Google's live API reads the standard alphabet only; ADK's clients send either.
  const data = blob.data.replaceAll('-', '+').replaceAll('_', '/');
  return { kind: 'media', input: { kind: 'blob', blob: { mimeType: blob.mime_type ?? blob.mimeType ?? '', data } } };
}

function firstIssue({ issues }: z.ZodError): string {
  const [issue] = issues;
  const place = issue?.path.join('.') ?? '';
  return `The frame is not valid${place === '' ? '' : ` at ${place}`}: ${issue?.message ?? 'unknown member'}.`;
}
