// Runs before the first paint: the theme that was chosen with the switch, if one was.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's theme holds.
}
