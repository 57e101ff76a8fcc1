import { z } from 'zod';
import type { Provider, ProviderData } from '../providers/provider.ts';

const signatureSchema = z.tuple([z.string(), z.record(z.string(), z.record(z.string(), z.unknown())).nullable()]);

/** Encodes a provider's name and its data as a `thoughtSignature`, in base64, because clients expect encoded bytes. */
export function toSignature(provider: string, data: ProviderData | undefined): string {
  return Buffer.from(JSON.stringify([provider, data ?? null])).toString('base64');
}

/** Returns this provider's data (`{}` if it sent none); `undefined` if another provider made the signature. */
export function fromSignature(provider: Provider, signature: string | null | undefined): ProviderData | undefined {
  if (!signature) return undefined;
  const parsed = signatureSchema.safeParse(parseBase64(signature));
  if (parsed.success) return parsed.data[0] === provider.name ? ((parsed.data[1] ?? {}) as ProviderData) : undefined;
  return provider.fromForeignSignature?.(signature);
}

function parseBase64(text: string): unknown {
  try {
    return JSON.parse(Buffer.from(text, 'base64').toString());
  } catch {
    return undefined;
  }
}
