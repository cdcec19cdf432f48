// Foreign text where a person decides: whole after a click, with a sign for each character that hides.
import { useState } from "react";
import { describeHidden, splitSigns } from "../model/visible";

/** A text with signs; above `max` characters its beginning, and a button for the rest. */
export function Shown({ text, max = Infinity }: { text: string; max?: number }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = !isWhole && text.length > max;
  return (
    <>
      {splitSigns(isCut ? text.slice(0, max) : text).map((part, index) =>
        typeof part === "string" ? (
          part
        ) : (
          <span key={index} className={`sign ${part.isWarning ? "sign-warn" : ""}`} title={part.title}>
            {part.name}
          </span>
        ),
      )}
      {isCut ? (
        <>
          {"… "}
          <button type="button" className="link font-sans" onClick={() => setWhole(true)}>
            Show all ({text.length - max} more characters)
          </button>
        </>
      ) : null}
    </>
  );
}

/** The warning above texts with characters that hide; nothing without them. */
export function HiddenBanner({ texts }: { texts: readonly string[] }) {
  const said = describeHidden(texts);
  if (!said) return null;
  return (
    <p role="alert" className="rounded-md border border-bad bg-bad-soft px-3 py-2 text-sm font-medium text-bad">
      {said}
    </p>
  );
}
