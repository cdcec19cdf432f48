// The frame around every page: header, login, the state of the connection, and which page an address means.
import { Component, lazy, type ReactNode, Suspense, useEffect, useState } from "react";
import { post, setLoggedOutHandler } from "./api/client";
import { withBase } from "./base";
import { useAction, useIsOffline } from "./model/hooks";
import { useServerStatus } from "./model/status";
import { HealthPage } from "./pages/health";
import { LoginPage } from "./pages/login";
import { SessionPage } from "./pages/session";
import { SessionsPage } from "./pages/sessions";
import { EnvironmentStrip } from "./parts/environment-strip";
import { Empty, Loading, OfflineBar } from "./parts/states";
import { ThemeSwitch } from "./parts/theme-switch";
import { Link, usePath } from "./router";

/** Few look at it, so it is read when it is first asked for. */
const ApiDocsPage = lazy(() => import("./pages/api-docs").then(({ ApiDocsPage }) => ({ default: ApiDocsPage })));

export function App() {
  const [isLoggedOut, setLoggedOut] = useState(false);
  const isOffline = useIsOffline();
  const path = usePath();
  const followed = useServerStatus(!isLoggedOut);
  useEffect(() => setLoggedOutHandler(() => setLoggedOut(true)), []);
  return (
    <div className="flex min-h-dvh flex-col">
      <a href="#main" className="button sr-only z-10 focus:not-sr-only focus:absolute focus:top-2 focus:left-2">
        Skip to the content
      </a>
      <header className="border-b border-line bg-surface">
        <div className="mx-auto flex h-14 max-w-7xl items-center gap-1 px-4 sm:gap-2 sm:px-6">
          <Link href="/" className="mr-2 flex items-center gap-2 font-semibold tracking-tight sm:mr-4">
            <img src={withBase("/favicon.svg")} alt="" width={24} height={24} />
            Glovebox
          </Link>
          {isLoggedOut ? null : (
            <nav aria-label="Main" className="flex gap-1 text-sm">
              <NavLink href="/" label="Sessions" isCurrent={path.length === 0 || path[0] === "sessions"} />
              <NavLink href="/status" label="Health" isCurrent={path[0] === "status"} />
              <NavLink href="/api-docs" label="API" isCurrent={path[0] === "api-docs"} />
            </nav>
          )}
          <div className="ml-auto flex items-center gap-2">
            {isLoggedOut ? null : <LogoutButton onLoggedOut={() => setLoggedOut(true)} />}
            <ThemeSwitch />
          </div>
        </div>
      </header>
      {isLoggedOut ? null : <EnvironmentStrip followed={followed} isOffline={isOffline} />}
      {isOffline ? <OfflineBar /> : null}
      <main id="main" tabIndex={-1} className="mx-auto w-full max-w-7xl flex-1 px-4 py-6 outline-none sm:px-6">
        <Catch key={path.join("/")}>
          {isLoggedOut ? <LoginPage onLoggedIn={() => setLoggedOut(false)} /> : <Page path={path} />}
        </Catch>
      </main>
    </div>
  );
}

function LogoutButton({ onLoggedOut }: { onLoggedOut: () => void }) {
  const action = useAction();
  const logOut = () =>
    action.run(async () => {
      await post("/api/logout", {});
      onLoggedOut();
    });
  return (
    <button type="button" className="button hidden sm:block" disabled={action.isBusy} onClick={logOut} title={action.error?.message}>
      Log out
    </button>
  );
}

function NavLink({ href, label, isCurrent }: { href: string; label: string; isCurrent: boolean }) {
  const style = isCurrent ? "bg-sunken text-ink" : "text-muted hover:bg-sunken hover:text-ink";
  return (
    <Link href={href} aria-current={isCurrent ? "page" : undefined} className={`rounded-md px-2 py-1 font-medium sm:px-3 ${style}`}>
      {label}
    </Link>
  );
}

function Page({ path }: { path: string[] }) {
  const [first, second, third, ...rest] = path;
  if (first === undefined) return <SessionsPage />;
  if (first === "status" && second === undefined) return <HealthPage />;
  if (first === "api-docs" && second === undefined) {
    return (
      <Suspense fallback={<Loading what="the description of the API" />}>
        <ApiDocsPage />
      </Suspense>
    );
  }
  if (first === "sessions" && second !== undefined) {
    return <SessionPage key={second} id={second} view={third ?? "conversation"} rest={rest} />;
  }
  if (first === "sessions") return <SessionsPage />;
  return (
    <>
      <h1 className="mb-4 text-xl font-semibold">Not found</h1>
      <Empty title="There is no such page">
        <Link href="/" className="link">
          Go to the sessions
        </Link>
        , or to the{" "}
        <Link href="/api-docs" className="link">
          description of the API
        </Link>
      </Empty>
    </>
  );
}

/** Shows an error of the page itself instead of an empty window. */
class Catch extends Component<{ children: ReactNode }, { message: string | null }> {
  override state = { message: null as string | null };

  static getDerivedStateFromError(error: unknown) {
    return { message: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    if (this.state.message === null) return this.props.children;
    return (
      <div role="alert" className="rounded-lg border border-bad bg-bad-soft px-4 py-3 text-sm">
        <p className="font-medium text-bad">This page could not be shown.</p>
        <p className="mt-1 wrap-anywhere">{this.state.message}</p>
        <button type="button" className="button mt-2" onClick={() => this.setState({ message: null })}>
          Try again
        </button>
      </div>
    );
  }
}
