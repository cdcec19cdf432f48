// A shell in a session's sandbox: the terminal on the page, and the WebSocket to its programs.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { sessionUrl } from "../api/client";
import { withBase } from "../base";
import { onThemeChange, terminalColours } from "./colours";
import { describeClose, describeEnd, type ShellState } from "./ending";
import { openStrictly } from "./strict-document";

/** The longest piece that is sent at once; the server takes 64 KiB. */
const PIECE_BYTES = 16 << 10;
const SCROLLBACK_LINES = 5000;
/** What may wait to be shown: a browser reads a WebSocket as fast as it comes, however slow the page is. */
const MAX_WAITING_BYTES = 8 << 20;

export interface Shell {
  focus: () => void;
  setScreenReader: (isOn: boolean) => void;
  close: () => void;
}

/** Opens a shell in `parent`. `onLeave` is called when the user wants the keyboard back. */
export function openShell(session: string, parent: HTMLElement, onState: (state: ShellState) => void, onLeave: () => void): Shell {
  const terminal = new Terminal({
    allowProposedApi: false,
    cursorBlink: !window.matchMedia("(prefers-reduced-motion: reduce)").matches,
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--font-mono") || "monospace",
    fontSize: 13,
    minimumContrastRatio: 4.5,
    scrollback: SCROLLBACK_LINES,
    theme: terminalColours(),
    // A program inside may not send the user elsewhere by text that looks like another: links are not made.
    linkHandler: { activate: () => {} },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  const removeSheets = openStrictly(terminal, parent);
  fit.fit();
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key !== "F6" || !event.ctrlKey) return true;
    if (event.type === "keydown") onLeave();
    event.preventDefault();
    return false;
  });

  const address = new URL(withBase(sessionUrl(session, `/terminal?cols=${terminal.cols}&rows=${terminal.rows}`)), window.location.href);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(address);
  socket.binaryType = "arraybuffer";
  let wasOpen = false;
  let isClosed = false;
  let end: ShellState | null = null;
  onState({ kind: "connecting" });
  socket.addEventListener("open", () => {
    wasOpen = true;
    onState({ kind: "open" });
    resize();
    terminal.focus();
  });
  socket.addEventListener("message", ({ data }: MessageEvent<ArrayBuffer | string>) => {
    if (typeof data === "string") end = describeEnd(data) ?? end;
    else show(new Uint8Array(data));
  });
  socket.addEventListener("close", ({ code }) => {
    if (isClosed) return;
    terminal.options.disableStdin = true;
    terminal.options.cursorBlink = false;
    onState(end ?? describeClose(wasOpen, code));
  });

  let waiting = 0;
  let left = 0;
  const show = (bytes: Uint8Array) => {
    if (waiting + bytes.length > MAX_WAITING_BYTES) {
      left += bytes.length;
      return;
    }
    waiting += bytes.length;
    terminal.write(bytes, () => {
      waiting -= bytes.length;
      if (left === 0 || waiting > 0) return;
      terminal.write(`\x18\x1b[0m\r\n[${left} bytes were too many to be shown]\r\n`);
      left = 0;
    });
  };
  const send = (bytes: Uint8Array<ArrayBuffer>) => {
    for (let at = 0; at < bytes.length && socket.readyState === WebSocket.OPEN; at += PIECE_BYTES) {
      socket.send(bytes.subarray(at, at + PIECE_BYTES));
    }
  };
  const encoder = new TextEncoder();
  terminal.onData((text) => send(encoder.encode(text)));
  // Reports of the mouse may be no text: one byte per character.
  terminal.onBinary((text) => send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
  const resize = () => {
    if (socket.readyState !== WebSocket.OPEN) return;
    socket.send(JSON.stringify({ resize: { cols: terminal.cols, rows: terminal.rows } }));
  };
  terminal.onResize(resize);
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(parent);
  const forgetTheme = onThemeChange(() => {
    terminal.options.theme = terminalColours();
  });

  return {
    focus: () => terminal.focus(),
    setScreenReader: (isOn) => {
      terminal.options.screenReaderMode = isOn;
    },
    close: () => {
      isClosed = true;
      observer.disconnect();
      forgetTheme();
      socket.close();
      terminal.dispose();
      removeSheets();
    },
  };
}
