/** Asks an agent over the Responses API, leaves in the middle of its answer, and reads the rest. */
const [prompt = 'What is 17 * 23? Use the calculator.', base = 'http://127.0.0.1:8000/v1'] = process.argv.slice(2);
const headers = {
  'content-type': 'application/json',
  ...(process.env['AGENTS_KEY'] && { authorization: `Bearer ${process.env['AGENTS_KEY']}` }),
};

interface Message {
  type: string;
  sequence_number: number;
  delta?: string;
  response?: { id: string; status: string };
}

/** Reads the events of a stream of server-sent events. */
async function* read(response: Response): AsyncGenerator<Message> {
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  let text = '';
  for await (const chunk of (response.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream())) {
    const frames = (text + chunk).split('\n\n');
    text = frames.pop() ?? '';
    for (const frame of frames) {
      const data = frame.split('\n').find((line) => line.startsWith('data: '));
      if (data && data !== 'data: [DONE]') yield JSON.parse(data.slice('data: '.length)) as Message;
    }
  }
}

const body = JSON.stringify({ model: 'harness_agent', input: prompt, background: true, stream: true });
const begun = await fetch(`${base}/responses`, { method: 'POST', headers, body });
let id = '';
let last = -1;
for await (const { response, sequence_number } of read(begun)) {
  id = response?.id ?? id;
  last = sequence_number;
  if (last >= 1) break;
}
const rest = await fetch(`${base}/responses/${id}?stream=true&starting_after=${last}`, { headers });
for await (const { delta, type, response } of read(rest)) {
  if (type === 'response.output_text.delta') process.stdout.write(delta ?? '');
  if (response) process.stdout.write(`\n${response.status}\n`);
}
