import { z } from 'zod';

/** Data that a provider requires to be sent back with a part, by the provider's name in the AI SDK. */
export type ProviderData = Record<string, Record<string, never>>;

const signatureSchema = z.tuple([z.string(), z.record(z.string(), z.record(z.string(), z.unknown())).nullable()]);

/** Encodes a provider's name and its data as a `thoughtSignature`, in base64, because clients expect encoded bytes. */
export function toSignature(provider: string, data: ProviderData | undefined): string {
  return Buffer.from(JSON.stringify([provider, data ?? null])).toString('base64');
}

/** Returns this provider's data (`{}` if it sent none); `undefined` if another provider made the signature. */
export function fromSignature(provider: string, signature: string | null | undefined): ProviderData | undefined {
  if (!signature) return undefined;
  const parsed = signatureSchema.safeParse(parseBase64(signature));
  if (parsed.success) return parsed.data[0] === provider ? ((parsed.data[1] ?? {}) as ProviderData) : undefined;
  // A session that was imported from ADK has signatures in Gemini's own format.
  return provider === 'google' ? ({ google: { thoughtSignature: signature } } as unknown as ProviderData) : undefined;
}

function parseBase64(text: string): unknown {
  try {
    return JSON.parse(Buffer.from(text, 'base64').toString());
  } catch {
    return undefined;
  }
}
