import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createInterface } from 'node:readline/promises';

// Asks an agent over MCP, and a person where the agent wants a confirmation: node examples/mcp/ask.ts <prompt> [url]
const [prompt = 'What is 17 * 23?', url = 'http://127.0.0.1:8000/mcp'] = process.argv.slice(2);
const client = new Client(
  { name: 'ask', version: '1.0.0' },
  { capabilities: { elicitation: {} }, versionNegotiation: { mode: 'auto' } },
);
client.setRequestHandler('elicitation/create', async ({ params }) => {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const said = await terminal.question(`${params.message}\nAllow it? [y/N] `);
  terminal.close();
  return { action: 'accept', content: { confirmed: said === 'y' } };
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const [agent] = (await client.listTools()).tools;
const answer = await client.callTool({ name: agent?.name ?? '', arguments: { prompt } });
console.log(answer.structuredContent);
await client.close();
