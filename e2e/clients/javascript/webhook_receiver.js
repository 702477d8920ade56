// A receiver of webhooks that holds each against the published verifier, with
// the secrets in its address, and prints what that says, also of a body that
// somebody has touched.

import { createServer } from "node:http";
import { Webhook } from "standardwebhooks";

const verifies = (secret, body, headers) => {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch {
    return false;
  }
};

const server = createServer((req, res) => {
  const parts = [];
  req.on("data", (part) => parts.push(part));
  req.on("end", () => {
    const body = Buffer.concat(parts).toString();
    const secrets = new URL(req.url, "http://receiver").searchParams.getAll("secret");
    console.log(JSON.stringify({
      id: JSON.parse(body).id,
      good: secrets.map((s) => verifies(s, body, req.headers)),
      tampered: secrets.map((s) => verifies(s, body.replace("hello", "hullo"), req.headers)),
    }));
    res.end();
  });
});
server.listen(0, "127.0.0.1", () => console.log("listening " + server.address().port));
