import { listOperations } from '../app.ts';
import { COMPONENTS } from '../components.ts';
import { openApiDocument } from '../http/openapi/document.ts';
import { compileDocument } from '../http/validation/openapi-gate.ts';

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
