import express from 'express';

/** A server that reads what it is sent and answers `{}`: what users notice of each other here is the machine. */
const app = express();
app.use(express.raw({ type: () => true, limit: '20mb' }));
app.use((_request, response) => void response.json({}));
const server = app.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.send?.(`http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`);
});
