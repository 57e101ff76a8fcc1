import { z } from 'zod';

/** Data that a provider wants back with a part, by the provider's namespace. */
export type ProviderData = Record<string, Record<string, never>>;

const signatureSchema = z.tuple([z.string(), z.record(z.string(), z.record(z.string(), z.unknown())).nullable()]);

/** Encodes a provider's name and data as a `thoughtSignature`: base64, since clients of the wire expect bytes. */
export function toSignature(provider: string, data: ProviderData | undefined): string {
  return Buffer.from(JSON.stringify([provider, data ?? null])).toString('base64');
}

/** Returns this provider's data of a signature, `{}` where there was none; `undefined` for another provider's. */
export function fromSignature(provider: string, signature: string | null | undefined): ProviderData | undefined {
  if (!signature) return undefined;
  const parsed = signatureSchema.safeParse(parseBase64(signature));
  if (parsed.success) return parsed.data[0] === provider ? ((parsed.data[1] ?? {}) as ProviderData) : undefined;
  // A session that came from ADK carries Gemini's own signatures.
  return provider === 'google' ? ({ google: { thoughtSignature: signature } } as unknown as ProviderData) : undefined;
}

function parseBase64(text: string): unknown {
  try {
    return JSON.parse(Buffer.from(text, 'base64').toString());
  } catch {
    return undefined;
  }
}
