import type { Part } from '../../core/content.ts';
import type { LiveBlob, LiveMessage } from '../definition/model.ts';
import type { RunInput } from './run.ts';

/** Maximum audio in memory per speaker: about five minutes of what browsers send. Older audio is dropped. */
const MAX_BYTES = 10 * 1024 * 1024;

interface Track {
  kind: 'input_audio' | 'output_audio';
  mimeType: string;
  chunks: Buffer[];
  bytes: number;
  /** Time at which the first audio of the speaker arrived, in Unix milliseconds. */
  startTime: number;
}

interface SavedAudio {
  role: 'user' | 'model';
  part: Part;
}

/** Buffers the audio of both speakers until a turn ends, then saves each as an artifact (ADK `save_live_blob`). */
export class LiveAudio {
  #input: Track | undefined;
  #output: Track | undefined;

  /** Adds audio of the user; video is dropped. */
  addInput(blob: LiveBlob): void {
    this.#input = extended(this.#input, 'input_audio', blob);
  }

  addOutput(parts: Part[]): void {
    for (const { inlineData } of parts) {
      const { mimeType, data } = inlineData ?? {};
      if (mimeType && data) this.#output = extended(this.#output, 'output_audio', { mimeType, data });
    }
  }

  /**
   * Saves the audio that a message completes. The end of a turn completes the audio of the user and of the model; the
   * end or interruption of the model's speech completes that of the model.
   * @throws {AgentError} if an artifact cannot be saved
   */
  async save(
    message: LiveMessage,
    { session, services }: Pick<RunInput, 'session' | 'services'>,
  ): Promise<SavedAudio[]> {
    const tracks = [
      ...(message.turnComplete ? [this.#input] : []),
      ...(message.turnComplete || message.interrupted || message.generationComplete ? [this.#output] : []),
    ].filter((track) => track !== undefined);
    const saved: SavedAudio[] = [];
    for (const track of tracks) {
      if (track.kind === 'input_audio') this.#input = undefined;
      else this.#output = undefined;
      const { mimeType } = track;
      // File name as in ADK. The extension is the media subtype without parameters such as `;rate=24000`.
      const extension = mimeType.split(';')[0]?.trim().split('/').at(-1);
      const name = `adk_live_audio_storage_${track.kind}_${track.startTime}.${extension}`;
      const data = Buffer.concat(track.chunks).toString('base64');
      const version = await services.saveArtifact(name, { inlineData: { mimeType, data } });
      const { appName, userId, sessionId } = session;
      const fileUri = `artifact://${appName}/${userId}/${sessionId}/_adk_live/${name}#${version}`;
      saved.push({ role: track.kind === 'input_audio' ? 'user' : 'model', part: { fileData: { fileUri, mimeType } } });
    }
    return saved;
  }
}

function extended(track: Track | undefined, kind: Track['kind'], { mimeType, data }: LiveBlob): Track | undefined {
  if (!mimeType.startsWith('audio/')) return track;
  const chunk = Buffer.from(data, 'base64');
  const grown = track ?? { kind, mimeType, chunks: [], bytes: 0, startTime: Date.now() };
  grown.chunks.push(chunk);
  grown.bytes += chunk.byteLength;
  while (grown.bytes > MAX_BYTES) grown.bytes -= grown.chunks.shift()?.byteLength ?? grown.bytes;
  return grown;
}
