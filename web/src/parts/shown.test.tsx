import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it } from "vitest";
import { DiffView } from "./diff-view";

afterEach(cleanup);

function diff(lines: string[]) {
  const added = lines.map((text, index) => ({ kind: "added" as const, text, before: null, after: index + 1 }));
  return render(<DiffView hunks={[{ header: "@@", lines: added }]} isSplit={false} label="Diff" />).container;
}

it("shows the end of a long line and of a long file after a click", () => {
  const page = diff([`true ${" ".repeat(3000)}; evil`, ...Array.from({ length: 6000 }, () => "x"), "last"]);
  expect(page.textContent).not.toContain("evil");
  fireEvent.click(screen.getByRole("button", { name: /^Show all \(/ }));
  expect(page.textContent).toContain("evil");
  fireEvent.click(screen.getByRole("button", { name: "Show all" }));
  expect(page.textContent).toContain("last");
});

it("warns of a hidden character and puts a sign in its place", () => {
  const page = diff(["true \u001b]; evil; \u0007"]);
  expect(screen.getByRole("alert").textContent).toBe("2 hidden characters: ESC, BEL");
  expect(page.querySelector(".sign")?.textContent).toBe("ESC");
  expect(page.textContent).toContain("ESC]; evil; BEL");
  cleanup();
  diff(["plain"]);
  expect(screen.queryByRole("alert")).toBeNull();
});
