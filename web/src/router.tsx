// Addresses of the interface, over the browser's history. The server answers each of them with the same page.
import { type AnchorHTMLAttributes, type MouseEvent, useSyncExternalStore } from "react";
import { withBase, withoutBase } from "./base";

const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  window.addEventListener("popstate", listener);
  return () => {
    listeners.delete(listener);
    window.removeEventListener("popstate", listener);
  };
}

export function navigate(to: string): void {
  window.history.pushState(null, "", withBase(to));
  window.scrollTo(0, 0);
  for (const listener of listeners) listener();
}

/** Parts of the current path, decoded. */
export function usePath(): string[] {
  const path = useSyncExternalStore(subscribe, () => window.location.pathname);
  return withoutBase(path).split("/").filter(Boolean).map(decodePart);
}

function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A link within the interface. */
export function Link({ href, onClick, ...rest }: AnchorHTMLAttributes<HTMLAnchorElement> & { href: string }) {
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!isPlain || event.defaultPrevented) return;
    event.preventDefault();
    navigate(href);
  };
  return <a href={withBase(href)} onClick={follow} {...rest} />;
}
