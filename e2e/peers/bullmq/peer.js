// The job API on BullMQ: node peer.js front|worker PORT REDIS_PORT KEY.
// The front takes jobs over HTTP, the worker runs 64 at once and counts them.
const bullmq = require('bullmq');
const http = require('http');
const fastify = require('fastify')({ logger: false });

const [role, port, redisPort, key] = process.argv.slice(2);
const connection = { host: '127.0.0.1', port: Number(redisPort) };

function serveFront() {
  const queue = new bullmq.Queue('jobs', { connection });
  fastify.addHook('onRequest', async (request, reply) => {
    if (request.headers.authorization !== `Bearer ${key}`) { reply.code(401).send(); return reply; }
  });
  fastify.post('/run', async (request, reply) => {
    if (!request.body || !request.body.input) { reply.code(400); return {}; }
    const job = await queue.add('job', request.body.input, { removeOnComplete: { age: 1800 } });
    return { id: job.id, status: 'IN_QUEUE' };
  });
  fastify.get('/status/:id', async (request, reply) => {
    const job = await queue.getJob(request.params.id);
    if (!job) { reply.code(404); return {}; }
    if (job.finishedOn && job.returnvalue !== undefined) return { id: job.id, status: 'COMPLETED', output: job.returnvalue };
    return { id: job.id, status: job.processedOn ? 'IN_PROGRESS' : 'IN_QUEUE' };
  });
  fastify.listen({ host: '127.0.0.1', port: Number(port) });
}

function serveWorker() {
  let completed = 0;
  const worker = new bullmq.Worker('jobs', async (job) => job.data, { connection, concurrency: 64 });
  worker.on('completed', () => { completed++; });
  worker.on('error', (err) => console.error(err));
  http.createServer((_, reply) => {
    reply.setHeader('content-type', 'application/json');
    reply.end(JSON.stringify({ completed }));
  }).listen(Number(port), '127.0.0.1');
}

if (role === 'front') serveFront(); else serveWorker();
