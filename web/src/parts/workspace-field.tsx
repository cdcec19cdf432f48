// What a new session begins with: the server's own workspace, a source that the operator has named, or an upload.
import { type ChangeEvent, useEffect, useId, useRef, useState } from "react";
import { type ApiError, type Source, type Upload, uploadWorkspace, type WorkspaceChoice } from "../api/client";
import { asApiError, usePolled } from "../model/hooks";
import { packFolder } from "../model/tar";
import { formatAgo, formatBytes } from "../model/text";
import { ErrorBox } from "./states";

/** The option that shows the fields of an upload. */
const NEW = "new";

interface Sending {
  sent: number;
  total: number;
}

interface WorkspaceFieldProps {
  value: WorkspaceChoice | null;
  /** Hears of a choice, and whether changes may be applied to it. Nothing can be begun while `isReady` is false. */
  onChange: (value: WorkspaceChoice | null, takesChanges: boolean, isReady: boolean) => void;
}

function keyOf(choice: WorkspaceChoice | null): string {
  if (!choice) return "";
  return "source" in choice ? `source:${choice.source}` : `upload:${choice.upload}`;
}

export function WorkspaceField({ value, onChange }: WorkspaceFieldProps) {
  const id = useId();
  const sources = usePolled<{ sources: Source[] }>("/api/sources", null);
  const uploads = usePolled<{ workspaces: Upload[] }>("/api/workspaces", null);
  const [isNew, setNew] = useState(false);
  const [sending, setSending] = useState<Sending | null>(null);
  const [note, setNote] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);

  const choose = (event: ChangeEvent<HTMLSelectElement>) => {
    const [kind, ...rest] = event.target.value.split(":");
    const name = rest.join(":");
    abort.current?.abort();
    setNote("");
    setError(null);
    setNew(kind === NEW);
    if (kind === "source") {
      const found = sources.data?.sources.find((source) => source.name === name);
      onChange({ source: name }, !found?.is_read_only, true);
    } else if (kind === "upload") onChange({ upload: name }, false, true);
    else if (kind === NEW) onChange(null, false, false);
    else onChange(null, true, true);
  };

  const send = async (archive: Blob, about: string) => {
    const controller = new AbortController();
    abort.current = controller;
    setError(null);
    setNote("");
    setSending({ sent: 0, total: archive.size });
    try {
      const upload = await uploadWorkspace(archive, (sent) => setSending({ sent: Math.min(sent, archive.size), total: archive.size }), controller.signal);
      if (controller.signal.aborted) return;
      setNote(`Uploaded: ${upload.files} ${upload.files === 1 ? "file" : "files"}, ${formatBytes(upload.bytes)}.${about}`);
      setNew(false);
      onChange({ upload: upload.id }, false, true);
      uploads.reload();
    } catch (caught) {
      if (!controller.signal.aborted) setError(asApiError(caught));
    } finally {
      if (abort.current === controller) setSending(null);
    }
  };
  const chooseFile = (event: ChangeEvent<HTMLInputElement>) => {
    const file = event.target.files?.[0];
    if (file) void send(file, "");
  };
  const chooseFolder = (event: ChangeEvent<HTMLInputElement>) => {
    const folder = packFolder(event.target.files ?? []);
    if (folder.files === 0 && folder.leftOut === 0) return;
    const about = folder.leftOut ? ` ${folder.leftOut} files of its repository were left out.` : "";
    void send(folder.archive, about);
  };
  const cancel = () => {
    abort.current?.abort();
    setSending(null);
    setNote("The upload was cancelled.");
  };

  const named = sources.data?.sources ?? [];
  const brought = uploads.data?.workspaces ?? [];
  // An upload that the list does not have yet.
  const fresh = value && "upload" in value && !brought.some((upload) => upload.id === value.upload) ? value.upload : null;
  const now = Date.now();
  return (
    <div className="grid gap-2 text-sm">
      <label className="grid gap-1" htmlFor={`${id}-choice`}>
        Workspace
        <select id={`${id}-choice`} className="field w-full text-sm sm:w-auto sm:justify-self-start" value={isNew ? NEW : keyOf(value)} disabled={sending !== null} onChange={choose}>
          <option value="">The server's own</option>
          {named.length ? (
            <optgroup label="Sources">
              {named.map((source) => (
                <option key={source.name} value={`source:${source.name}`}>
                  {source.name}
                  {source.is_read_only ? " (takes no changes back)" : ""}
                </option>
              ))}
            </optgroup>
          ) : null}
          <optgroup label="Uploads">
            {fresh ? <option value={`upload:${fresh}`}>{fresh}</option> : null}
            {brought.map((upload) => (
              <option key={upload.id} value={`upload:${upload.id}`}>
                {upload.id}: {upload.files} {upload.files === 1 ? "file" : "files"}, {formatBytes(upload.bytes)}, {formatAgo(upload.created_unix_ms, now)}
              </option>
            ))}
            <option value={NEW}>Upload an archive or a folder…</option>
          </optgroup>
        </select>
      </label>
      {isNew && !sending ? (
        <div className="grid gap-3 sm:grid-cols-2">
          <label className="grid gap-1">
            Archive (tar or tar.gz)
            <input type="file" className="field py-1.5 text-sm" accept=".tar,.tgz,.gz,application/x-tar,application/gzip" onChange={chooseFile} />
          </label>
          <label className="grid gap-1">
            Folder
            <input
              type="file"
              className="field py-1.5 text-sm"
              onChange={chooseFolder}
              ref={(input) => {
                // No attribute that React knows of.
                if (input) input.webkitdirectory = true;
              }}
            />
          </label>
        </div>
      ) : null}
      {sending ? (
        <div className="flex flex-wrap items-center gap-3">
          <progress className="h-2 min-w-40 flex-1 accent-accent" aria-label="Upload" max={Math.max(sending.total, 1)} value={sending.sent} />
          <span className="text-muted">
            {sending.sent < sending.total ? `${formatBytes(sending.sent)} of ${formatBytes(sending.total)}` : "Unpacking…"}
          </span>
          <button type="button" className="button" onClick={cancel}>
            Cancel upload
          </button>
        </div>
      ) : null}
      <p role="status" className="text-muted empty:hidden">
        {note}
      </p>
      {error ? <ErrorBox error={error} /> : null}
      {sources.error && !sources.error.isOffline ? <ErrorBox error={sources.error} onRetry={sources.reload} /> : null}
    </div>
  );
}
