// Puts a text on the clipboard, and says whether that worked.
import { useEffect, useState } from "react";

/** How long the button says what came of it. */
const SHOWN_MS = 2000;

type CopyState = "idle" | "copied" | "failed";

export function CopyButton({ text, label, onFailed }: { text: string; label: string; onFailed?: () => void }) {
  const [state, setState] = useState<CopyState>("idle");
  useEffect(() => {
    if (state === "idle") return;
    const timer = window.setTimeout(() => setState("idle"), SHOWN_MS);
    return () => window.clearTimeout(timer);
  }, [state]);
  const copy = async () => {
    try {
      // Browsers have a clipboard for pages of HTTPS and of their own machine only.
      await navigator.clipboard.writeText(text);
      setState("copied");
    } catch {
      setState("failed");
      onFailed?.();
    }
  };
  return (
    <>
      <button type="button" className="button" aria-label={label} onClick={() => void copy()}>
        {state === "copied" ? "Copied" : "Copy"}
      </button>
      <span role="status" className="sr-only">
        {state === "copied" ? "Copied" : state === "failed" ? "The browser allows no copy; the text is selected" : ""}
      </span>
    </>
  );
}
