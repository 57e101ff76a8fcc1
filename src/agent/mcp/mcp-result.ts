import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import type { JsonObject, Part } from '../../core/content.ts';

type Block = CallToolResult['content'][number];

/**
 * A tool result of MCP as a function response: structured content as it is, else the texts; images, sounds and blobs go
 * to the attachments; `isError` becomes `{error: text}`.
 */
export function toToolResult(result: CallToolResult, attachments: Part[]): JsonObject {
  const texts = result.content.flatMap((block) => textOf(block) ?? []);
  if (result.isError === true) return { error: texts.join('\n') || 'The tool failed without saying why.' };
  for (const block of result.content) attachments.push(...mediaOf(block));
  if (result.structuredContent) return result.structuredContent;
  return {
    result: texts.length > 0 || attachments.length === 0 ? texts.join('\n') : `${attachments.length} attachment(s)`,
  };
}

function textOf(block: Block): string | undefined {
  if (block.type === 'text') return block.text;
  if (block.type === 'resource_link') return `${block.name}: ${block.uri}`;
  return block.type === 'resource' && 'text' in block.resource ? block.resource.text : undefined;
}

function mediaOf(block: Block): Part[] {
  if (block.type === 'image' || block.type === 'audio')
    return [{ inlineData: { mimeType: block.mimeType, data: block.data } }];
  if (block.type !== 'resource' || !('blob' in block.resource)) return [];
  const { blob, mimeType } = block.resource;
  return [{ inlineData: { mimeType: mimeType ?? 'application/octet-stream', data: blob } }];
}
