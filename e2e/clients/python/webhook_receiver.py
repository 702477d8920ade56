"""A receiver of webhooks that holds each against the published verifier, with
the secrets in its address, and prints what that says, also of a body that
somebody has touched."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from standardwebhooks import Webhook, WebhookVerificationError


def verifies(secret, body, headers):
    try:
        Webhook(secret).verify(body, headers)
        return True
    except WebhookVerificationError:
        return False


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        secrets = parse_qs(urlsplit(self.path).query)["secret"]
        headers = {name.lower(): value for name, value in self.headers.items()}
        print(json.dumps({
            "id": json.loads(body)["id"],
            "good": [verifies(s, body, headers) for s in secrets],
            "tampered": [verifies(s, body.replace(b"hello", b"hullo"), headers) for s in secrets],
        }))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print("listening", server.server_port)
server.serve_forever()
