// One stream of the server's status for all tabs: a browser opens at most six connections to a server of HTTP/1.1.
// A tab says "hello" when it comes and "bye" when it goes, and hears { type, data } of each event.
"use strict";
const TYPES = ["status", "environment"];
const AGAIN_MS = 3000;
const ports = new Set();
/** The newest event of each type, for tabs that come later. */
const newest = new Map();
let source = null;
let timer;

function connect() {
  timer = undefined;
  source = new EventSource(new URL("api/status/events", self.location.href));
  for (const type of TYPES) {
    source.addEventListener(type, ({ data }) => {
      newest.set(type, data);
      for (const port of ports) port.postMessage({ type, data });
    });
  }
  source.onerror = () => {
    source?.close();
    source = null;
    timer = setTimeout(connect, AGAIN_MS);
  };
}

function disconnect() {
  clearTimeout(timer);
  timer = undefined;
  source?.close();
  source = null;
  newest.clear();
}

self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data === "bye") {
      ports.delete(port);
      if (!ports.size) disconnect();
      return;
    }
    ports.add(port);
    for (const [type, text] of newest) port.postMessage({ type, data: text });
    if (!source && timer === undefined) connect();
  };
};
