import { z } from 'zod';
import { jsonObject, partSchema } from '../core/content.ts';
import { identifierSchema } from '../core/session.ts';

export const artifactVersionSchema = z
  .looseObject({
    version: z.int().describe('Monotonically increasing version number, from 0 per artifact.'),
    canonicalUri: z.string().describe('Canonical URI of the stored artifact.'),
    customMetadata: jsonObject.optional().describe('Custom metadata, any members.'),
    createTime: z.number().optional().describe('Unix timestamp in seconds.'),
    mimeType: z.string().nullish().describe('Content MIME type.'),
  })
  .describe('What is known of one version of an artifact.');

export const saveArtifactSchema = z
  .looseObject({
    filename: identifierSchema.describe(
      'Name of the artifact; `user:` in front shares it over all sessions of the user.',
    ),
    artifact: partSchema.describe('The content: `inlineData` (base64), `text` or `fileData`.'),
    customMetadata: jsonObject.nullish(),
  })
  .describe('A new version of an artifact.');

export type ArtifactVersion = z.infer<typeof artifactVersionSchema>;
