/** The `data` of each frame of an event stream, as JSON, in order. */
export async function* readFrames<Frame>(response: Response): AsyncGenerator<Frame, void, void> {
  let text = '';
  for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const frames = (text + chunk).split(/\r?\n\r?\n/);
    text = frames.pop() ?? '';
    for (const frame of frames) {
      const data = frame
        .split(/\r?\n/)
        .flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trimStart()] : []));
      if (data.length > 0) yield JSON.parse(data.join('\n')) as Frame;
    }
  }
}
