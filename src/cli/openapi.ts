import { listOperations } from '../process/app.ts';
import { COMPONENTS } from '../process/components.ts';
import { openApiDocument } from '../platform/http/openapi/document.ts';
import { compileDocument } from '../platform/http/validation/openapi-gate.ts';

/**
 * Prints every operation of every mode, as the committed copy has it. @throws Error when it is not a valid OpenAPI
 * document.
 */
export async function printOpenApi(): Promise<void> {
  const document = openApiDocument(
    listOperations({ isDevelopment: true, isShared: false, hasCronjobs: true, hasWebhooks: true }),
    {
      authMode: 'local',
      components: COMPONENTS,
    },
  );
  await compileDocument(document);
  process.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
}
