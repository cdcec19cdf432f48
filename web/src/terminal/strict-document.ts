// xterm.js writes its colours and sizes into <style> elements and `style` attributes, which the server's content security
// policy does not let act. Here both become what the policy allows: constructed style sheets and the style object of an
// element. Only scripts of the page itself can use either; markup that got into the page still could not.
import type { Terminal } from "@xterm/xterm";

/** Stands in for a <style> element: its text is the content of a style sheet of the document. */
function makeStandIn(sheets: Set<CSSStyleSheet>): HTMLElement {
  const sheet = new CSSStyleSheet();
  sheets.add(sheet);
  document.adoptedStyleSheets.push(sheet);
  const element = Document.prototype.createElement.call(document, "template");
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  return element;
}

/** Rows of text are spans, made by xterm.js at any time; the effect of what it sets on them stays the same. */
function letSpansHaveStyles(): void {
  HTMLSpanElement.prototype.setAttribute = function (name: string, value: string) {
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  };
}

/** Opens a terminal in `parent` within the policy. The returned function removes its style sheets again. */
export function openStrictly(terminal: Terminal, parent: HTMLElement): () => void {
  const sheets = new Set<CSSStyleSheet>();
  letSpansHaveStyles();
  // All style elements are made while the terminal opens, and get their text later as well.
  const create = (name: string) => (name === "style" ? makeStandIn(sheets) : Document.prototype.createElement.call(document, name));
  document.createElement = create as typeof document.createElement;
  try {
    terminal.open(parent);
  } finally {
    // The prototype's is in force again.
    Reflect.deleteProperty(document, "createElement");
  }
  return () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.has(sheet));
  };
}
