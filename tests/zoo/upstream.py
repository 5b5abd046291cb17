"""The upstream of the zoo: it passes every request to a gateway with the simulator, and counts the images.

A request whose text contains `unpaid-once-WORD` is refused the first time for each WORD, with the status 503 and without
an image. One that contains `counted-WORD` is only counted. A request whose text contains `takes-NUMBER-seconds` is
answered after that time, and the answer to one that contains `answers-quality-WORD` states this quality. `GET /ledger`
answers what each WORD has cost, as JSON.

    python3 upstream.py BASE_URL_OF_THE_SIMULATOR KEY_OF_THE_SIMULATOR

It listens on a free port of this machine, and prints its base URL.
"""

import collections
import http.client
import http.server
import json
import re
import sys
import threading
import time
import urllib.parse

import upstream_model

SIMULATOR = urllib.parse.urlsplit(sys.argv[1])
KEY = sys.argv[2]
WORD = re.compile(rb"unpaid-once-([0-9a-z]+)")
COUNTED = re.compile(rb"counted-([0-9a-z]+)")
QUALITY = re.compile(rb"answers-quality-([a-z]+)")
DELAY = re.compile(rb"takes-([0-9]+)-seconds")
REFUSAL = b'{"error":{"message":"The server is overloaded.","type":"server_error","code":"server_overloaded","param":null}}'

lock = threading.Lock()
# For each word: the statuses of its requests, except those that the text model answered.
ledger = collections.defaultdict(list)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/ledger":
            with lock:
                self.answer(200, "application/json", json.dumps(ledger).encode())
        else:
            self.forward(b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        found = WORD.search(body)
        if found is None:
            counted = COUNTED.search(body)
            self.serve(body, counted and counted.group(1).decode())
            return
        word = found.group(1).decode()
        with lock:
            is_first = word not in ledger
            if is_first:
                ledger[word].append(503)
        if is_first:
            self.answer(503, "application/json", REFUSAL)
            return
        self.serve(body, word)

    def serve(self, body, word=None):
        """Answers as the text model if the request has a task for a tool, and else as the simulator."""
        if delay := DELAY.search(body):
            time.sleep(int(delay.group(1)))
        answer = upstream_model.answer(body) if self.path.endswith("/responses") else None
        if answer is not None:
            self.answer(200, *answer)
            return
        status = self.forward(body)
        if word is not None:
            with lock:
                ledger[word].append(status)

    def forward(self, body):
        """Sends the request to the simulator under its own key; returns the status of the answer."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        headers["authorization"] = f"Bearer {KEY}"
        connection = http.client.HTTPConnection(SIMULATOR.hostname, SIMULATOR.port, timeout=120)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        if quality := QUALITY.search(body):
            data = re.sub(rb'"quality": ?"[a-z]+"', b'"quality":"%s"' % quality.group(1), data)
        self.answer(answer.status, answer.getheader("content-type", ""), data)
        connection.close()
        return answer.status

    def answer(self, status, kind, data):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
server.serve_forever()
