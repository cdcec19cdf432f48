// The description of the API, for people: every operation with its parameters, bodies, answers and a command that makes it.
// What is shown is what the server answers at `/api/openapi.json`, and nothing else.
import { useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { get } from "../api/client";
import { basePath } from "../base";
import { useIsWide, usePolled, useTitle } from "../model/hooks";
import { type ApiDocument, filterGroups, listGroups, type OperationGroup, readDocument } from "../model/openapi";
import { MethodBadge, OperationCard, PathText } from "../parts/operation-card";
import { Inline } from "../parts/prose";
import { ApiDocumentContext } from "../parts/schema-view";
import { Empty, ErrorBox, Loading } from "../parts/states";

const ADDRESS = "/api/openapi.json";

async function readDescription(path: string, signal: AbortSignal): Promise<ApiDocument> {
  return readDocument(await get<unknown>(path, signal));
}

/** What follows `#` in the page's address. */
function useHash(): string {
  return useSyncExternalStore(
    (listener) => {
      window.addEventListener("hashchange", listener);
      return () => window.removeEventListener("hashchange", listener);
    },
    () => window.location.hash.slice(1),
  );
}

export function ApiDocsPage() {
  useTitle("API");
  const { data, error, reload } = usePolled<ApiDocument>(ADDRESS, null, readDescription);
  if (data) return <Description document={data} />;
  return (
    <>
      <h1 className="mb-4 text-xl font-semibold">API</h1>
      {error ? <ErrorBox error={error} onRetry={reload} /> : <Loading what="the description of the API" />}
    </>
  );
}

function Description({ document }: { document: ApiDocument }) {
  const groups = useMemo(() => listGroups(document), [document]);
  const total = groups.reduce((sum, { operations }) => sum + operations.length, 0);
  const [filter, setFilter] = useState("");
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const hash = useHash();
  const isWide = useIsWide();
  const shown = useMemo(() => filterGroups(groups, filter), [groups, filter]);
  const anchors = shown.flatMap(({ operations }) => operations.map(({ anchor }) => anchor));
  const areAllOpen = anchors.length > 0 && anchors.every((anchor) => open.has(anchor));

  // The address names an operation: it is opened and gets the focus, whatever the filter says.
  const [target, setTarget] = useState<string | null>(null);
  useEffect(() => {
    const isNamed = ({ operations }: OperationGroup) => operations.some(({ anchor }) => anchor === hash);
    if (!groups.some(isNamed)) return;
    setOpen((old) => new Set(old).add(hash));
    setFilter((old) => (filterGroups(groups, old).some(isNamed) ? old : ""));
    setTarget(hash);
  }, [groups, hash]);
  // By now it is in the page, which it was not where the filter hid it.
  useEffect(() => {
    if (target === null) return;
    const card = window.document.getElementById(target);
    card?.scrollIntoView();
    card?.querySelector("summary")?.focus({ preventScroll: true });
    setTarget(null);
  }, [target]);

  const toggle = (anchor: string, isOpen: boolean) => {
    if (open.has(anchor) === isOpen) return;
    const next = new Set(open);
    if (isOpen) next.add(anchor);
    else next.delete(anchor);
    setOpen(next);
  };
  const toggleAll = () => setOpen(areAllOpen ? new Set() : new Set([...open, ...anchors]));

  const filterField = (
    <div className="grid gap-1">
      <input
        type="search"
        className="field text-sm"
        aria-label="Filter operations"
        placeholder="Filter by path, word or field"
        value={filter}
        onChange={(event) => setFilter(event.target.value)}
      />
      <p role="status" className="text-xs text-muted">
        {filter.trim() ? `${anchors.length} of ${total} operations` : `${total} operations`}
      </p>
    </div>
  );
  const contents = <Contents groups={shown} current={hash} />;

  return (
    <ApiDocumentContext value={document}>
      <div className="grid grid-cols-[minmax(0,1fr)] gap-x-8 gap-y-6 lg:grid-cols-[17rem_minmax(0,1fr)] lg:grid-rows-[auto_1fr]">
        <header className="grid content-start gap-2 lg:col-start-2">
          <div className="flex flex-wrap items-center gap-x-3 gap-y-2">
            <h1 className="text-xl font-semibold">
              {document.info.title} API <span className="text-base font-normal text-muted">{document.info.version}</span>
            </h1>
            <button type="button" className="button ml-auto" disabled={!anchors.length} onClick={toggleAll}>
              {areAllOpen ? "Close all" : "Open all"}
            </button>
          </div>
          {document.info.description ? (
            <p className="max-w-prose wrap-anywhere">
              <Inline text={document.info.description} />
            </p>
          ) : null}
          <p className="max-w-prose text-sm wrap-anywhere text-muted">
            The server is at <code className="font-mono">{`${window.location.origin}${basePath}`}</code>. The commands below expect a token in the variable{" "}
            <code className="font-mono">TOKEN</code>, such as one that <code className="font-mono">glovebox token create</code> has made. Programs
            read the same description at{" "}
            <a className="link" href={ADDRESS}>
              {ADDRESS}
            </a>
            .
          </p>
        </header>
        <div className="lg:sticky lg:top-4 lg:col-start-1 lg:row-span-2 lg:row-start-1 lg:max-h-[calc(100dvh-2rem)] lg:self-start">
          <div className="grid max-h-[inherit] grid-rows-[auto_minmax(0,1fr)] gap-3">
            {filterField}
            {isWide ? (
              <nav aria-label="Operations" className="overflow-y-auto pr-2">
                {contents}
              </nav>
            ) : (
              <details className="group card">
                <summary className="list-none px-3 py-2 text-sm font-medium [&::-webkit-details-marker]:hidden">
                  <span aria-hidden="true" className="mr-1 inline-block text-muted group-open:rotate-90">
                    ▸
                  </span>
                  Contents
                </summary>
                <nav aria-label="Operations" className="border-t border-line p-3">
                  {contents}
                </nav>
              </details>
            )}
          </div>
        </div>
        <div className="grid grid-cols-[minmax(0,1fr)] content-start gap-8 lg:col-start-2">
          {shown.length ? null : <Empty title="No operation matches">The filter looks at paths, descriptions and the names of parameters and fields.</Empty>}
          {shown.map((group) => (
            <section key={group.name} aria-labelledby={`group-${group.name}`} className="grid grid-cols-[minmax(0,1fr)] gap-2">
              <h2 id={`group-${group.name}`} className="text-lg font-semibold">
                {group.title}
              </h2>
              {group.description ? (
                <p className="text-sm text-muted">
                  <Inline text={group.description} />
                </p>
              ) : null}
              {group.operations.map((operation) => (
                <OperationCard
                  key={operation.anchor}
                  operation={operation}
                  baseUrl={`${window.location.origin}${basePath}`}
                  isOpen={open.has(operation.anchor)}
                  onToggle={(isOpen) => toggle(operation.anchor, isOpen)}
                />
              ))}
            </section>
          ))}
        </div>
      </div>
    </ApiDocumentContext>
  );
}

function Contents({ groups, current }: { groups: OperationGroup[]; current: string }) {
  return (
    <ul className="grid gap-4">
      {groups.map(({ name, title, operations }) => (
        <li key={name}>
          <p className="mb-1 text-sm font-semibold">{title}</p>
          <ul>
            {operations.map(({ anchor, method, path }) => (
              <li key={anchor}>
                <a
                  href={`#${anchor}`}
                  aria-current={anchor === current ? "location" : undefined}
                  className={`flex items-baseline gap-2 rounded-md px-1 py-1 -outline-offset-2 hover:bg-sunken ${anchor === current ? "bg-sunken text-ink" : "text-muted"}`}
                >
                  <MethodBadge method={method} />
                  <span className="min-w-0 font-mono text-xs wrap-anywhere">
                    <PathText path={path} />
                  </span>
                </a>
              </li>
            ))}
          </ul>
        </li>
      ))}
    </ul>
  );
}
