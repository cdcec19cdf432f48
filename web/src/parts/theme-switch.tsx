// Light, dark, or as the system says. The choice is kept in this browser; `theme.js` reads it before the first paint.
import { useState } from "react";

type Theme = "system" | "light" | "dark";

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const MARKS: Record<Theme, string> = { system: "◐", light: "☀", dark: "☾" };

function current(): Theme {
  const theme = document.documentElement.dataset["theme"];
  return theme === "light" || theme === "dark" ? theme : "system";
}

export function ThemeSwitch() {
  const [theme, setTheme] = useState(current);
  const change = () => {
    const next = NEXT[theme];
    setTheme(next);
    if (next === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = next;
    try {
      if (next === "system") localStorage.removeItem("theme");
      else localStorage.setItem("theme", next);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
  };
  return (
    <button type="button" className="button border-transparent bg-transparent text-muted" aria-label={`Theme: ${theme}`} title={`Theme: ${theme}`} onClick={change}>
      <span aria-hidden="true">{MARKS[theme]}</span>
      <span aria-hidden="true" className="hidden capitalize sm:inline">
        {theme}
      </span>
    </button>
  );
}
