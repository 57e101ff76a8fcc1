import type { Content, JsonObject, Part } from '../../src/core/content.ts';
import type { ToolDeclaration } from '../../src/agent/definition/model.ts';

export function answerTo(contents: Content[]): Part[];
export function isForHttp(contents: Content[]): boolean;
export const USAGE: { promptTokenCount: number; candidatesTokenCount: number; totalTokenCount: number };
export const LOOKUP: ToolDeclaration;
export const LOOKED_UP: JsonObject;
