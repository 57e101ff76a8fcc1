import { z } from 'zod';

/** Data that a provider wants back with a part, by the provider's namespace. */
export type ProviderData = Record<string, Record<string, never>>;

const signatureSchema = z.tuple([z.string(), z.record(z.string(), z.record(z.string(), z.unknown())).nullable()]);

/**
 * A provider's data as the text of `thoughtSignature`: base64, as clients of the wire expect bytes, of the provider's
 * name and the data. Without data it still says whose thought it is.
 */
export function toSignature(provider: string, data: ProviderData | undefined): string {
  return Buffer.from(JSON.stringify([provider, data ?? null])).toString('base64');
}

/**
 * The data that this provider put into a signature, `{}` where there was none; `undefined` for a signature of another
 * provider.
 */
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
