// Colours of a terminal in the page's two themes.
import type { ITheme } from "@xterm/xterm";

const LIGHT: ITheme = {
  black: "#1a2223",
  red: "#a62b2b",
  green: "#1c6b3a",
  yellow: "#835207",
  blue: "#1f5fa8",
  magenta: "#8a3a8f",
  cyan: "#0f6e67",
  white: "#566263",
  brightBlack: "#6b7778",
  brightRed: "#c23a34",
  brightGreen: "#27804a",
  brightYellow: "#96600f",
  brightBlue: "#2c70c0",
  brightMagenta: "#a04aa6",
  brightCyan: "#178078",
  brightWhite: "#3a4647",
};

const DARK: ITheme = {
  black: "#2e3738",
  red: "#f29a92",
  green: "#7fcf98",
  yellow: "#e3b563",
  blue: "#8ab8f0",
  magenta: "#d7a3dc",
  cyan: "#5ec4b8",
  white: "#c5cdcd",
  brightBlack: "#8b9798",
  brightRed: "#ffb5ae",
  brightGreen: "#9fe3b4",
  brightYellow: "#f3cd87",
  brightBlue: "#abcdf7",
  brightMagenta: "#e6bfea",
  brightCyan: "#8adcd2",
  brightWhite: "#f2f5f5",
};

function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  if (chosen === "light" || chosen === "dark") return chosen === "dark";
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The colours now; those that the page has as well are read from it. */
export function terminalColours(): ITheme {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    ...(isDark() ? DARK : LIGHT),
    background: of("surface"),
    foreground: of("ink"),
    cursor: of("accent"),
    cursorAccent: of("surface"),
    selectionBackground: isDark() ? "#2f5f59" : "#bfe3de",
  };
}

/** Calls `listener` when the theme changes, by the switch or by the system; returns what ends that. */
export function onThemeChange(listener: () => void): () => void {
  const observer = new MutationObserver(listener);
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  const media = window.matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", listener);
  return () => {
    observer.disconnect();
    media.removeEventListener("change", listener);
  };
}
