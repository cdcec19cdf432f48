// What a body of the API looks like: the fields of one level, each of which opens to those within it.
import { createContext, useContext, useState } from "react";
import { type ApiDocument, describeSchema, type Schema, type SchemaEnd, type SchemaRow, type SchemaView } from "../model/openapi";
import { Inline } from "./prose";

/** The description that references lead into. */
export const ApiDocumentContext = createContext<ApiDocument>({ openapi: "3.1.0", info: { title: "", version: "" }, paths: {} });

const ENDS: Record<SchemaEnd, string> = {
  repeats: "The same again as above.",
  deep: "There is more within it than is shown here.",
  missing: "The description of the API says no more about it.",
};

/** One row: a parameter, a header, or a field of a body. What has a place is there or not there, but never `null`. */
export function FieldRow({ name, place, isRequired, schema, description, trail }: FieldRowProps) {
  const document = useContext(ApiDocumentContext);
  const view = describeSchema(document, schema ?? {}, trail);
  const text = description || view.description;
  return (
    <li className="grid gap-1 py-2">
      <p className="flex flex-wrap items-baseline gap-x-2 gap-y-0.5">
        <code className="font-mono text-sm font-semibold wrap-anywhere">{name}</code>
        {schema ? <span className="text-sm wrap-anywhere text-muted">{place ? view.type.replace(/ or null$/, "") : view.type}</span> : null}
        {place ? <span className="text-sm text-muted">in {place}</span> : null}
        {isRequired ? <span className="text-xs font-medium text-warn">required</span> : null}
      </p>
      {text ? (
        <p className="text-sm wrap-anywhere">
          <Inline text={text} />
        </p>
      ) : null}
      <Facts view={view} />
      <SchemaRows view={view} of={name} />
    </li>
  );
}

interface FieldRowProps {
  name: string;
  place?: string;
  isRequired: boolean;
  schema: Schema | null;
  /** Instead of the schema's own. */
  description?: string;
  trail?: readonly string[];
}

function Facts({ view }: { view: SchemaView }) {
  return (
    <>
      {view.values.length ? (
        <p className="text-sm wrap-anywhere text-muted">
          {view.values.length === 1 ? "Always " : "One of "}
          {view.values.map((value, index) => (
            <span key={value}>
              {index ? ", " : ""}
              <code className="rounded-sm bg-sunken px-1 font-mono text-ink">{value}</code>
            </span>
          ))}
        </p>
      ) : null}
      {view.facts.length ? <p className="text-sm wrap-anywhere text-muted first-letter:uppercase">{view.facts.join("; ")}.</p> : null}
      {view.end ? <p className="text-sm text-muted">{ENDS[view.end]}</p> : null}
    </>
  );
}

/** The rows within, behind a line that opens them; they are made when it is opened. */
function SchemaRows({ view, of }: { view: SchemaView; of: string }) {
  const [isOpen, setOpen] = useState(false);
  const count = view.rows.length;
  if (count === 0) return null;
  const isForms = view.rows.every(({ kind }) => kind === "form");
  const word = isForms ? (count === 1 ? "form" : "forms") : count === 1 ? "field" : "fields";
  return (
    <details className="group/rows" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary className="w-fit list-none rounded-sm text-sm text-accent hover:underline [&::-webkit-details-marker]:hidden">
        <span aria-hidden="true" className="mr-1 inline-block group-open/rows:rotate-90">
          ▸
        </span>
        {count} {word}
        <span className="sr-only"> of {of}</span>
      </summary>
      {isOpen ? <RowList rows={view.rows} trail={view.trail} /> : null}
    </details>
  );
}

function RowList({ rows, trail }: { rows: SchemaRow[]; trail: readonly string[] }) {
  return (
    <ul className="mt-1 divide-y divide-line border-l-2 border-line pl-3">
      {rows.map((row) => (
        <FieldRow key={`${row.kind} ${row.name}`} name={row.name} isRequired={row.isRequired} schema={row.schema} trail={trail} />
      ))}
    </ul>
  );
}

/** A whole body: its type, what it is, and its first level. */
export function SchemaBlock({ schema }: { schema: Schema }) {
  const document = useContext(ApiDocumentContext);
  const view = describeSchema(document, schema);
  return (
    <div className="grid gap-1">
      <p className="text-sm wrap-anywhere">
        <span className="font-medium">{view.type}</span>
        {view.description ? (
          <span className="text-muted">
            {" "}
            <Inline text={view.description} />
          </span>
        ) : null}
      </p>
      <Facts view={view} />
      {view.rows.length ? <RowList rows={view.rows} trail={view.trail} /> : null}
    </div>
  );
}
