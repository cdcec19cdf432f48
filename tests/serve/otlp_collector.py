# A collector of traces for the tests: it takes OTLP over HTTP and reads it with the protobuf classes that OpenTelemetry
# publishes. Argument: `take`, `refuse` (503 for every batch) or `hang` (no answer for every batch). It prints its port,
# then a line of JSON for each batch: path, headers, attributes of the resource, spans.
import gzip, http.server, json, socketserver, sys, threading, time

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

manner = sys.argv[1]
printing = threading.Lock()


def say(value):
    with printing:
        print(json.dumps(value), flush=True)


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def of_span(span):
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "status": span.status.code,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "attributes": attributes(span.attributes),
        "links": [{"trace": link.trace_id.hex(), "id": link.span_id.hex()} for link in span.links],
        "events": len(span.events),
    }


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            say({
                "path": self.path,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "resource": attributes(group.resource.attributes),
                "spans": [of_span(span) for scope in group.scope_spans for span in scope.spans],
            })
        if manner == "hang":
            time.sleep(600)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(503 if manner == "refuse" else 200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


server = Server(("127.0.0.1", 0), Handler)
say({"port": server.server_address[1]})
server.serve_forever()
