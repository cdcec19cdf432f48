import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import type { Session } from "../api/client";
import { Ports } from "./ports";

afterEach(cleanup);

const SESSION = { id: "s-a" } as Session;

describe("Ports", () => {
  it("links to one preview for each port, in a tab that knows nothing of this one", () => {
    const ports = [
      { port: 3000, address: "127.0.0.1" },
      { port: 3000, address: "::1" },
      { port: 8080, address: "0.0.0.0" },
    ];
    render(<Ports list={{ is_running: true, ports }} session={SESSION} />);
    const links = screen.getAllByRole("link");
    expect(links.map((link) => link.getAttribute("href"))).toEqual(["/api/sessions/s-a/previews/3000", "/api/sessions/s-a/previews/8080"]);
    for (const link of links) {
      expect(link.getAttribute("target")).toBe("_blank");
      expect(link.getAttribute("rel")).toContain("noopener");
    }
    expect(screen.getByText("127.0.0.1, ::1")).toBeTruthy();
  });

  it("says why there is none", () => {
    const { rerender } = render(<Ports list={{ is_running: true, ports: [] }} session={SESSION} />);
    expect(screen.getByText("No program is listening")).toBeTruthy();
    rerender(<Ports list={{ is_running: false, ports: [] }} session={SESSION} />);
    expect(screen.getByText("The sandbox is not running")).toBeTruthy();
    expect(screen.queryByRole("link")).toBeNull();
  });
});
