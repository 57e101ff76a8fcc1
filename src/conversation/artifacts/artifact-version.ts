import { z } from 'zod';
import { freeForm, jsonObject, partSchema } from '../../core/content.ts';
import { identifierSchema } from '../../core/session.ts';
import { looseObject } from '../../core/members.ts';

export const artifactVersionSchema = looseObject('What is known of one version of an artifact.', {
  version: z
    .int()
    .describe('0 for the first save of a name, then one more each; never handed out twice, also after a delete.'),
  canonicalUri: z
    .string()
    .describe('Names the bytes: `postgres://…` in the database, `s3://…` in a bucket; no address to load.'),
  customMetadata: jsonObject.optional().describe('Free-form notes given with the save; `{}` where there were none.'),
  createTime: z.number().optional().describe('When the version was saved, Unix seconds by the clock of the database.'),
  mimeType: z.string().nullish().describe('IANA media type of the content; `text/plain` for a text.'),
});

export const saveArtifactSchema = looseObject('A new version of an artifact.', {
  filename: identifierSchema.describe(
    'Name of the artifact; `user:` in front shares it over all sessions of the user.',
  ),
  artifact: partSchema.describe('The content: `inlineData` (base64), `text` or `fileData`.'),
  customMetadata: freeForm('Free-form notes, given back with every description of this version.'),
});

/** An artifact version without its bytes; `createTime` is in Unix seconds. */
export type ArtifactVersion = z.infer<typeof artifactVersionSchema>;
