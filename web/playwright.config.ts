// Tests of the interface in a real browser, against the real program: `cargo xtask web --test BINARY`.
import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "e2e",
  outputDir: "test-results",
  timeout: 60_000,
  expect: { timeout: 10_000 },
  // The machine is shared with sandboxes; two browsers at once make waits longer and no failure clearer.
  workers: 1,
  // As tests of the program are: a test that passes only by itself is named at the end.
  retries: 1,
  reporter: "list",
  use: {
    browserName: "chromium",
    launchOptions: {
      executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
      // Chromium refuses its own sandbox to root, and pages come from the program under test only.
      args: ["--no-sandbox"],
    },
    trace: "retain-on-failure",
  },
});
