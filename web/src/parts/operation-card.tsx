// One operation of the API: a line with its method, path and title, which opens to all that is known about it.
import { type ReactNode, useContext, useRef } from "react";
import { commandLine } from "../model/curl";
import type { Answer, Content, Operation } from "../model/openapi";
import { CopyButton } from "./copy-button";
import { Inline, Prose } from "./prose";
import { ApiDocumentContext, FieldRow, SchemaBlock } from "./schema-view";

const METHOD_STYLES: Record<string, string> = {
  GET: "bg-accent-soft text-accent",
  POST: "bg-good-soft text-good",
  PUT: "bg-warn-soft text-warn",
  DELETE: "bg-bad-soft text-bad",
};

export function MethodBadge({ method }: { method: string }) {
  const style = METHOD_STYLES[method] ?? "bg-sunken text-muted";
  return <span className={`inline-block w-14 shrink-0 rounded-sm py-px text-center font-mono text-xs font-semibold ${style}`}>{method}</span>;
}

interface OperationCardProps {
  operation: Operation;
  /** Where the server is, such as `http://127.0.0.1:8484`. */
  baseUrl: string;
  isOpen: boolean;
  onToggle: (isOpen: boolean) => void;
}

export function OperationCard({ operation, baseUrl, isOpen, onToggle }: OperationCardProps) {
  return (
    <details
      id={operation.anchor}
      className="card group scroll-mt-4 overflow-hidden"
      open={isOpen}
      onToggle={(event) => onToggle(event.currentTarget.open)}
      data-testid="operation"
    >
      <summary className="flex list-none items-baseline gap-3 px-3 py-2 -outline-offset-2 hover:bg-sunken [&::-webkit-details-marker]:hidden">
        <MethodBadge method={operation.method} />
        <span className="grid min-w-0 flex-1 gap-x-4 xl:grid-cols-[minmax(0,22rem)_minmax(0,1fr)]">
          <h3 className="font-mono text-sm font-semibold wrap-anywhere">
            <PathText path={operation.path} />
          </h3>
          <span className="text-sm wrap-anywhere text-muted">
            <Inline text={operation.title} />
          </span>
        </span>
        <span aria-hidden="true" className="self-center text-muted group-open:rotate-90">
          ▸
        </span>
      </summary>
      {isOpen ? <OperationBody operation={operation} baseUrl={baseUrl} /> : null}
    </details>
  );
}

/** A path, which may go on in the next line after each part. */
export function PathText({ path }: { path: string }) {
  return path.split(/(?=\/)/).map((part, index) => (
    <span key={index}>
      {index ? <wbr /> : null}
      {part.startsWith("/{") ? (
        <>
          /<span className="text-accent">{part.slice(1)}</span>
        </>
      ) : (
        part
      )}
    </span>
  ));
}

function OperationBody({ operation, baseUrl }: { operation: Operation; baseUrl: string }) {
  const { parameters, body, answers, access } = operation;
  return (
    <div className="grid grid-cols-[minmax(0,1fr)] gap-5 border-t border-line p-3 sm:p-4">
      <div className="grid gap-2 text-sm">
        {operation.details ? <Prose text={operation.details} /> : null}
        <p className="flex flex-wrap items-baseline gap-x-3">
          <span className="min-w-0 flex-1 wrap-anywhere text-muted">
            <Inline text={access.text} />
          </span>
          <a className="link" href={`#${operation.anchor}`} aria-label={`Link to ${operation.method} ${operation.path}`}>
            Link
          </a>
        </p>
      </div>
      <Example operation={operation} baseUrl={baseUrl} />
      {parameters.length ? (
        <Part title="Parameters">
          <ul className="divide-y divide-line">
            {parameters.map((one) => (
              <FieldRow
                key={`${one.in} ${one.name}`}
                name={one.name}
                place={one.in}
                isRequired={one.required ?? false}
                schema={one.schema ?? null}
                description={one.description ?? ""}
              />
            ))}
          </ul>
        </Part>
      ) : null}
      {body ? (
        <Part title="Request body" note={body.isRequired ? "required" : "optional"}>
          {body.description ? (
            <p className="text-sm">
              <Inline text={body.description} />
            </p>
          ) : null}
          {body.contents.map((content) => (
            <ContentBlock key={content.contentType} content={content} />
          ))}
        </Part>
      ) : null}
      <Part title="Responses">
        <ul className="divide-y divide-line">
          {answers.map((answer) => (
            <AnswerRow key={answer.status} answer={answer} />
          ))}
        </ul>
      </Part>
    </div>
  );
}

function Part({ title, note, children }: { title: string; note?: string; children: ReactNode }) {
  return (
    <section className="grid grid-cols-[minmax(0,1fr)] gap-2">
      <h4 className="text-sm font-semibold">
        {title}
        {note ? <span className="ml-2 font-normal text-muted">{note}</span> : null}
      </h4>
      {children}
    </section>
  );
}

function Example({ operation, baseUrl }: { operation: Operation; baseUrl: string }) {
  const document = useContext(ApiDocumentContext);
  const place = useRef<HTMLPreElement>(null);
  const line = commandLine(document, operation, baseUrl);
  const program = line.slice(0, line.indexOf(" "));
  const select = () => {
    if (place.current) window.getSelection()?.selectAllChildren(place.current);
  };
  return (
    <section className="overflow-hidden rounded-md border border-line">
      <div className="flex items-center gap-2 border-b border-line py-1 pr-1 pl-3">
        <h4 className="flex-1 text-sm font-semibold">{program}</h4>
        <CopyButton text={line} label={`Copy the ${program} command of ${operation.method} ${operation.path}`} onFailed={select} />
      </div>
      <pre
        ref={place}
        tabIndex={0}
        role="group"
        aria-label={`Command of ${operation.method} ${operation.path}`}
        className="overflow-x-auto bg-sunken p-3 font-mono text-sm -outline-offset-2"
      >
        {line}
      </pre>
    </section>
  );
}

/** The form of a body under one `Content-Type`. */
function ContentBlock({ content }: { content: Content }) {
  return (
    <div className="grid gap-1">
      <p className="text-sm">
        <code className="rounded-sm bg-sunken px-1 font-mono wrap-anywhere">{content.contentType}</code>
      </p>
      {content.schema && !content.isRaw ? <SchemaBlock schema={content.schema} /> : null}
    </div>
  );
}

function statusStyle(status: string): string {
  if (/^[45]/.test(status)) return "bg-bad-soft text-bad";
  return /^[12]/.test(status) ? "bg-good-soft text-good" : "bg-sunken text-muted";
}

function AnswerRow({ answer }: { answer: Answer }) {
  const { status, description, headers, contents } = answer;
  const hasSchema = contents.some(({ schema, isRaw }) => schema && !isRaw);
  const types = contents.map(({ contentType }) => contentType).join(", ");
  return (
    <li className="flex items-baseline gap-3 py-2">
      <span className={`w-12 shrink-0 rounded-sm py-px text-center font-mono text-xs font-semibold ${statusStyle(status)}`}>{status}</span>
      <div className="grid min-w-0 flex-1 gap-1">
        <p className="text-sm wrap-anywhere">
          <Inline text={description} />
        </p>
        {headers.length ? (
          <ul>
            {headers.map(({ name, description, schema }) => (
              <FieldRow key={name} name={name} place="header" isRequired={false} schema={schema} description={description} />
            ))}
          </ul>
        ) : null}
        {hasSchema ? (
          <details className="group/answer">
            <summary className="w-fit list-none rounded-sm text-sm text-accent hover:underline [&::-webkit-details-marker]:hidden">
              <span aria-hidden="true" className="mr-1 inline-block group-open/answer:rotate-90">
                ▸
              </span>
              {types}
              <span className="sr-only"> of {status}</span>
            </summary>
            <div className="mt-2 grid gap-3">
              {contents.map((content) => (
                <ContentBlock key={content.contentType} content={content} />
              ))}
            </div>
          </details>
        ) : types ? (
          <p className="font-mono text-sm wrap-anywhere text-muted">{types}</p>
        ) : null}
      </div>
    </li>
  );
}
