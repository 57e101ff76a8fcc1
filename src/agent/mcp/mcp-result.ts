import type { CallToolResult } from '@modelcontextprotocol/client';
import type { Part } from '../../core/content.ts';

type Block = CallToolResult['content'][number];

/** Converts what a server's tool answers: structured content, else the texts; media become attachments. */
export function toToolResult(result: CallToolResult, attachments: Part[]): unknown {
  const texts = result.content.flatMap((block) => toText(block) ?? []);
  if (result.isError === true) return { error: texts.join('\n') || 'The tool failed without saying why.' };
  for (const block of result.content) attachments.push(...toMedia(block));
  const { structuredContent: value } = result as { structuredContent?: unknown };
  if (value !== undefined) return value;
  return {
    result: texts.length > 0 || attachments.length === 0 ? texts.join('\n') : `${attachments.length} attachment(s)`,
  };
}

function toText(block: Block): string | undefined {
  if (block.type === 'text') return block.text;
  if (block.type === 'resource_link') return `${block.name}: ${block.uri}`;
  return block.type === 'resource' && 'text' in block.resource ? block.resource.text : undefined;
}

function toMedia(block: Block): Part[] {
  if (block.type === 'image' || block.type === 'audio')
    return [{ inlineData: { mimeType: block.mimeType, data: block.data } }];
  if (block.type !== 'resource' || !('blob' in block.resource)) return [];
  const { blob, mimeType } = block.resource;
  return [{ inlineData: { mimeType: mimeType ?? 'application/octet-stream', data: blob } }];
}
