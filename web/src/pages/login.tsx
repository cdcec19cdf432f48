// Asks for a token when the server does not know who asks.
import { type FormEvent, useState } from "react";
import { logIn } from "../api/client";
import { useAction, useTitle } from "../model/hooks";
import { ErrorBox } from "../parts/states";

export function LoginPage({ onLoggedIn }: { onLoggedIn: () => void }) {
  useTitle("Log in");
  const [token, setToken] = useState("");
  const action = useAction();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    action.run(async () => {
      await logIn(token.trim());
      onLoggedIn();
    });
  };
  return (
    <form onSubmit={submit} className="card mx-auto mt-8 grid max-w-md gap-4 p-6">
      <h1 className="text-xl font-semibold">Log in</h1>
      <p className="text-sm text-muted">
        Paste the administrator's token, or one that was made with <code className="font-mono">glovebox token create</code>. The
        address that the server prints when it starts logs a browser in by itself.
      </p>
      <label className="grid gap-1 text-sm font-medium">
        Token
        <input
          className="field font-mono"
          type="password"
          autoComplete="current-password"
          required
          autoFocus
          value={token}
          onChange={(event) => setToken(event.target.value)}
        />
      </label>
      {action.error ? <ErrorBox error={action.error} /> : null}
      <button type="submit" className="button button-main" disabled={action.isBusy || !token.trim()}>
        {action.isBusy ? "Logging in…" : "Log in"}
      </button>
    </form>
  );
}
