import { z } from 'zod';
import { type Content, contentSchema } from '../../core/content.ts';

/** What a client of a live session sends in one text frame; members that it does not know are ignored. */
const liveFrameSchema = z.looseObject({
  content: contentSchema.nullish(),
  blob: z.looseObject({ mime_type: z.string().nullish(), mimeType: z.string().nullish() }).nullish(),
  activity_start: z.unknown().optional(),
  activity_end: z.unknown().optional(),
  close: z.boolean().nullish(),
});

/** What a frame asks for. */
export type LiveFrame =
  | { kind: 'content'; content: Content }
  | { kind: 'blob'; mimeType: string }
  | { kind: 'close' | 'nothing' }
  | { kind: 'invalid'; error: string };

/**
 * Reads a frame. Of several members the first of close, activity_start, activity_end, blob, content counts (ADK's
 * order); `{}` asks for nothing, and so do the bounds of an activity where nobody listens to audio.
 */
export function toLiveFrame(text: string): LiveFrame {
  let sent: unknown;
  try {
    sent = JSON.parse(text);
  } catch {
    return { kind: 'invalid', error: 'The frame is not valid JSON.' };
  }
  const parsed = liveFrameSchema.safeParse(sent);
  if (!parsed.success) return { kind: 'invalid', error: firstIssue(parsed.error) };
  const { content, blob, close, activity_start: start, activity_end: end } = parsed.data;
  if (close === true) return { kind: 'close' };
  if (start != null || end != null) return { kind: 'nothing' };
  if (blob) return { kind: 'blob', mimeType: blob.mime_type ?? blob.mimeType ?? '' };
  return content ? { kind: 'content', content } : { kind: 'nothing' };
}

function firstIssue({ issues }: z.ZodError): string {
  const [issue] = issues;
  const place = issue?.path.join('.') ?? '';
  return `The frame is not valid${place === '' ? '' : ` at ${place}`}: ${issue?.message ?? 'unknown member'}.`;
}
