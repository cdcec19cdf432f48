// Words of a model: paragraphs, lists, headings and code, as text and never as markup. Links stay text, so that nothing
// leads away from here under a false name.
import { Fragment, type ReactNode } from "react";

export function Prose({ text }: { text: string }) {
  const blocks = text.split(/^```/m);
  return (
    <div className="grid gap-3 wrap-anywhere">
      {blocks.map((block, index) => {
        // Blocks have no identity but their place; texts only grow.
        if (index % 2 === 1) {
          const end = block.indexOf("\n");
          return <Code key={index} text={end < 0 ? "" : block.slice(end + 1).replace(/\n$/, "")} />;
        }
        return <Paragraphs key={index} text={index > 0 ? block.replace(/^[^\n]*\n?/, "") : block} />;
      })}
    </div>
  );
}

function Code({ text }: { text: string }) {
  return (
    <pre tabIndex={0} role="group" aria-label="Code" className="overflow-x-auto rounded-md bg-sunken p-3 font-mono text-sm">
      {text}
    </pre>
  );
}

function Paragraphs({ text }: { text: string }) {
  const paragraphs = text.split(/\n{2,}/).filter((paragraph) => paragraph.trim());
  return paragraphs.map((paragraph, index) => {
    const heading = /^#{1,6} (.*)$/.exec(paragraph.trim());
    if (heading) {
      return (
        <p key={index} className="font-semibold">
          <Inline text={heading[1] ?? ""} />
        </p>
      );
    }
    const lines = paragraph.trim().split("\n");
    if (lines.every((line) => /^\s*(?:[-*]|\d+[.)]) /.test(line))) {
      return (
        <ul key={index} className="grid list-disc gap-1 pl-6">
          {lines.map((line, at) => (
            <li key={at}>
              <Inline text={line.replace(/^\s*(?:[-*]|\d+[.)]) /, "")} />
            </li>
          ))}
        </ul>
      );
    }
    return (
      <p key={index} className="whitespace-pre-wrap">
        <Inline text={paragraph.trim()} />
      </p>
    );
  });
}

/** A piece of a line: `code` and **strong** words, the rest as it is. */
export function Inline({ text }: { text: string }): ReactNode {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((piece, index) => {
    if (piece.startsWith("`") && piece.endsWith("`") && piece.length > 2) {
      return (
        <code key={index} className="rounded-sm bg-sunken px-1 font-mono text-sm">
          {piece.slice(1, -1)}
        </code>
      );
    }
    if (piece.startsWith("**") && piece.endsWith("**") && piece.length > 4) return <strong key={index}>{piece.slice(2, -2)}</strong>;
    return <Fragment key={index}>{piece}</Fragment>;
  });
}
