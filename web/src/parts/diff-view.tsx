// A diff of one file: both sides beside each other where there is room, else one below the other.
import { useMemo, useState } from "react";
import { type DiffLine, type Hunk, searchedTexts, sideBySide } from "../model/patch";
import { HiddenBanner, Shown } from "./shown";

/** Lines of one file that are shown before a click. */
const FIRST_LINES = 600;
/** Characters of one line that are shown before a click. */
const MAX_LINE_CHARS = 2000;

const LINE_STYLE = { same: "", added: "bg-good-soft", removed: "bg-bad-soft" };
const MARK = { same: " ", added: "+", removed: "-" };

/** The first lines of hunks, and how many there are. */
function bound(hunks: readonly Hunk[], max: number): { hunks: Hunk[]; total: number } {
  let total = 0;
  const shown: Hunk[] = [];
  for (const hunk of hunks) {
    const room = Math.max(0, max - total);
    if (room > 0) shown.push({ ...hunk, lines: hunk.lines.slice(0, room) });
    total += hunk.lines.length;
  }
  return { hunks: shown, total };
}

export function DiffView({ hunks, isSplit, label }: { hunks: readonly Hunk[]; isSplit: boolean; label: string }) {
  const [max, setMax] = useState(FIRST_LINES);
  const { hunks: shown, total } = useMemo(() => bound(hunks, max), [hunks, max]);
  const texts = useMemo(() => searchedTexts(hunks), [hunks]);
  return (
    <div role="group" aria-label={label} tabIndex={0} className="overflow-x-auto font-mono text-sm">
      <HiddenBanner texts={texts} />
      <table className={`w-full border-collapse ${isSplit ? "table-fixed" : ""}`}>
        {isSplit ? (
          <colgroup>
            <col className="w-12" />
            <col />
            <col className="w-12" />
            <col />
          </colgroup>
        ) : null}
        <thead className="sr-only">
          {isSplit ? (
            <tr>
              <th scope="col">Line before</th>
              <th scope="col">Before</th>
              <th scope="col">Line after</th>
              <th scope="col">After</th>
            </tr>
          ) : (
            <tr>
              <th scope="col">Line before</th>
              <th scope="col">Line after</th>
              <th scope="col">Text</th>
            </tr>
          )}
        </thead>
        {shown.map((hunk, index) => (
          <tbody key={index}>
            <tr>
              <td colSpan={isSplit ? 4 : 3} className={`border-b border-line bg-sunken px-3 py-1 text-muted ${index ? "border-t" : ""}`}>
                <Shown text={hunk.header} max={MAX_LINE_CHARS} />
              </td>
            </tr>
            {isSplit ? <SplitRows lines={hunk.lines} /> : <UnifiedRows lines={hunk.lines} />}
          </tbody>
        ))}
      </table>
      {total > max ? (
        <p className="border-t border-line px-3 py-2 font-sans text-muted">
          {total - max} more lines.{" "}
          <button type="button" className="link" onClick={() => setMax(Infinity)}>
            Show all
          </button>
        </p>
      ) : null}
    </div>
  );
}

function NumberCell({ value, style = "" }: { value: number | null | undefined; style?: string }) {
  return <td className={`${style} w-px px-2 text-right align-top text-xs/5 text-muted select-none`}>{value ?? ""}</td>;
}

function TextCell({ line }: { line: DiffLine | null }) {
  if (!line) return <td className="bg-sunken" />;
  return (
    <td className={`px-2 align-top wrap-anywhere whitespace-pre-wrap ${LINE_STYLE[line.kind]}`}>
      <span className="select-none">{MARK[line.kind]} </span>
      <Shown text={line.text} max={MAX_LINE_CHARS} />
      {line.hasCarriageReturn ? (
        <span className="sign" title="U+000D CR, the line end of Windows">
          CR
        </span>
      ) : null}
    </td>
  );
}

function SplitRows({ lines }: { lines: readonly DiffLine[] }) {
  return sideBySide(lines).map((row, index) => (
    <tr key={index}>
      <NumberCell value={row.left?.before} />
      <TextCell line={row.left} />
      <NumberCell value={row.right?.after} style="border-l border-line" />
      <TextCell line={row.right} />
    </tr>
  ));
}

function UnifiedRows({ lines }: { lines: readonly DiffLine[] }) {
  return lines.map((line, index) => (
    <tr key={index}>
      <NumberCell value={line.before} />
      <NumberCell value={line.after} />
      <TextCell line={line} />
    </tr>
  ));
}
