import { cleanup, render } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import type { Environment, ServerStatus } from "../model/status";
import { EnvironmentStrip } from "./environment-strip";

afterEach(cleanup);

const system = { os: "Debian GNU/Linux 12", kernel: "Linux 6.1", arch: "x86_64", time_zone: "UTC", directory: "/srv" };
const environment: Environment = {
  state: "ready",
  placement: "sandbox",
  host: { ...system, hostname: "build-1", user: "ann", programs: [{ name: "git", version: "2.39" }] },
  sandbox: { ...system, directory: "/workspace", programs: [{ name: "python3", version: "3.11" }] },
  problem: null,
  captured_at: "2026-11-24T12:00:00Z",
  changes: [],
};
const status: ServerStatus = { state: "ready", placement: "sandbox", startup: null, components: [] };

function strip(next: { status: ServerStatus | null; environment: Environment | null }, isOffline = false) {
  const { queryByTestId } = render(<EnvironmentStrip followed={next} isOffline={isOffline} />);
  return queryByTestId("environment-strip");
}

describe("the environment strip", () => {
  it("shows facts, state and when they were captured", () => {
    const shown = strip({ status, environment });
    expect(shown?.textContent).toContain("Ready");
    expect(shown?.textContent).toContain("Host: ann@build-1 · Debian GNU/Linux 12 · x86_64 | Sandbox: Debian GNU/Linux 12");
    expect(shown?.textContent).toContain("python3 3.11");
    expect(shown?.title).toContain("/workspace");
    expect(shown?.querySelector("time")?.dateTime).toBe(environment.captured_at);
  });

  it("says in red that tools work on this machine", () => {
    const shown = strip({ status: { ...status, placement: "local" }, environment: null });
    expect(shown?.textContent).toContain("Tools work on this machine, without walls");
    expect(shown?.className).toContain("text-bad");
    cleanup();
    expect(strip({ status, environment })?.className).not.toContain("text-bad");
  });

  it("counts the steps of the start", () => {
    const startup = { step: 3, steps: 3, name: "read the environment" };
    const shown = strip({ status: { ...status, state: "starting", startup }, environment: { ...environment, state: "starting" } });
    expect(shown?.querySelector("[aria-live]")?.textContent).toBe("Starting: step 3 of 3, read the environment");
    expect(shown?.textContent).not.toContain("Host:");
  });

  it("says what is down, and is not there without anything to say", () => {
    expect(strip({ status: { ...status, state: "down" }, environment })?.textContent).toContain("Down");
    cleanup();
    expect(strip({ status, environment }, true)?.textContent).toContain("not reachable");
    cleanup();
    expect(strip({ status: null, environment: null })).toBeNull();
  });
});
