// The path below which the server lies, as its page says it: "" at the root of its host, or "/glovebox".

const element = typeof document === "undefined" ? null : document.querySelector('meta[name="base-path"]');

export const basePath: string = element?.getAttribute("content") ?? "";

/** The address of one of the server's paths, such as "/api/sessions". */
export function withBase(path: string): string {
  return `${basePath}${path}`;
}

/** The part of an address's path that the server knows. */
export function withoutBase(path: string): string {
  return path.startsWith(`${basePath}/`) ? path.slice(basePath.length) : path;
}
