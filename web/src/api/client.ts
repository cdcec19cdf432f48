// Requests to the server this page came from. Every failure is an ApiError that says what was wrong and what to do.
import { withBase } from "../base";
import { decodeText } from "../model/bytes";
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
export type Session = Schemas["SessionView"];
export type Approval = Schemas["OpenApproval"];
export type TaskRequest = paths["/api/tasks"]["post"]["requestBody"]["content"]["application/json"];
export type WorkspaceChoice = Schemas["WorkspaceChoice"];
export type Source = Schemas["SourceView"];
export type Upload = Schemas["UploadView"];
export type MessageRequest = Schemas["MessageRequest"];
export type Directory = Schemas["DirectoryView"];
export type CheckpointList = Schemas["CheckpointList"];
export type Checkpoint = Schemas["CheckpointView"];
export type PortList = Schemas["PortList"];
export type Answer = Schemas["Word"];
export type ConflictChoice = Schemas["ConflictChoice"];

/** How the server's parts are. */
export type Health = Schemas["Ready"];

/** What the user that asks may have at the same time. */
export type Quotas = Schemas["Quotas"];

/** One changed path. */
export interface Change {
  path: string;
  path_b64?: string;
  source?: string;
  kind: "added" | "modified" | "deleted" | "renamed";
  flags: string[];
}

/** A path that both sides changed. */
export interface Conflict {
  path: string;
  path_b64?: string;
  reason: string;
  /** Path at which the sandbox's version lies, or would be put. */
  theirs?: string;
  is_text: boolean;
  /** Sizes of both versions; `null` for a side that has none. */
  project_bytes: number | null;
  sandbox_bytes: number | null;
}

/** Changes of a session. */
export interface Changes {
  /** Digest of this list and of the project at these paths. */
  digest: string;
  changes: Change[];
  refused: { path: string; reason: string }[];
  conflicts: Conflict[];
  files: { path: string; insertions: number; deletions: number; is_binary: boolean }[];
  /** The last Apply. */
  last_apply: LastApply | null;
}

/** Outcome of an Apply: lists of at most 1,000 paths, and how many there are. */
export interface LastApply {
  at_unix_ms: number;
  counts: { applied: number; already_there: number; conflicts: number; refused: number };
  conflicts: { path: string; reason: string; theirs?: string; marked?: boolean }[];
}

export class ApiError extends Error {
  constructor(
    /** The status, or 0 when there was no answer. */
    readonly status: number,
    message: string,
    readonly remedy: string | null,
    readonly code: string,
    /** The request's, which the server's log has as well. */
    readonly requestId: string | null = null,
  ) {
    super(message);
  }

  get isOffline(): boolean {
    return this.status === 0;
  }
}

/** Called when the server no longer knows who asks. */
let onLoggedOut: () => void = () => {};

export function setLoggedOutHandler(handler: () => void): void {
  onLoggedOut = handler;
}

function errorOf(status: number, body: string): ApiError {
  try {
    const { error } = JSON.parse(body) as Schemas["ErrorBody"];
    return new ApiError(status, error.message, error.remedy ?? null, error.code, error.request_id ?? null);
  } catch {
    return new ApiError(status, `The server answered with status ${status}.`, null, "unknown");
  }
}

function offline(): ApiError {
  return new ApiError(0, "The server does not answer.", "Check that it is running; this page tries again.", "offline");
}

export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(withBase(path), { credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw offline();
  }
  // Readiness answers 503 with a body that says which part is not ready.
  if (response.ok || (response.status === 503 && path === "/health/ready")) return response;
  if (response.status === 401 && path !== "/api/login") onLoggedOut();
  throw errorOf(response.status, await response.text());
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, signal ? { signal } : {})).json()) as T;
}

/** The quotas of the user, or nothing while nobody has logged in: a page that needs no user asks for them. */
export async function getQuotas(path: string, signal: AbortSignal): Promise<Quotas | null> {
  const response = await fetch(withBase(path), { credentials: "same-origin", signal }).catch((error: unknown) => {
    if (signal.aborted) throw error;
    throw offline();
  });
  if (response.status === 401) return null;
  if (!response.ok) throw errorOf(response.status, await response.text());
  return (await response.json()) as Quotas;
}

export async function post<T>(path: string, body: unknown, headers: Record<string, string> = {}): Promise<T> {
  const response = await send(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/**
 * Uploads a workspace. `onProgress` hears how many bytes have been sent. Of the ways in which a page sends bytes, this one
 * says how far it is.
 */
export function uploadWorkspace(archive: Blob, onProgress: (sent: number) => void, signal: AbortSignal): Promise<Upload> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", withBase("/api/workspaces"));
    request.upload.addEventListener("progress", (event) => onProgress(event.loaded));
    request.addEventListener("load", () => {
      if (request.status === 201) return resolve(JSON.parse(request.responseText) as Upload);
      if (request.status === 401) onLoggedOut();
      reject(errorOf(request.status, request.responseText));
    });
    request.addEventListener("error", () => reject(offline()));
    request.addEventListener("abort", () => reject(new ApiError(-1, "The upload was cancelled.", null, "cancelled")));
    signal.addEventListener("abort", () => request.abort());
    request.send(archive);
  });
}

/** Logs this browser in; the server answers with a cookie. */
export async function logIn(token: string): Promise<void> {
  await send("/api/login", { method: "POST", headers: { authorization: `Bearer ${token}` } });
}

export interface BoundedText {
  text: string;
  isBinary: boolean;
  isCut: boolean;
}

/** Reads the beginning of an answer, and no more of it than `maxBytes`. A patch is never binary. */
export async function readBounded(response: Response, maxBytes: number, isPatch = false): Promise<BoundedText> {
  const reader = response.body?.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  let isCut = false;
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    length += value.length;
    if (length > maxBytes) {
      isCut = true;
      await reader.cancel();
      break;
    }
  }
  const bytes = new Uint8Array(Math.min(length, maxBytes));
  let at = 0;
  for (const chunk of chunks) {
    const part = chunk.subarray(0, bytes.length - at);
    bytes.set(part, at);
    at += part.length;
  }
  const isBinary = !isPatch && bytes.subarray(0, 8192).includes(0);
  return { text: isBinary ? "" : decodeText(bytes), isBinary, isCut };
}

/** The path of a session, or of something below it. */
export function sessionUrl(id: string, rest = ""): string {
  return `/api/sessions/${encodeURIComponent(id)}${rest}`;
}

/** The path of an entry of a session's workspace. */
export function fileUrl(id: string, path: string): string {
  return sessionUrl(id, `/files${path === "" ? "" : `/${path.split("/").map(encodeURIComponent).join("/")}`}`);
}
