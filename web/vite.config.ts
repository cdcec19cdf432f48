// Builds the interface into the files that the server's program carries. Their names never change, so that the program
// can name them; the server sends each with an ETag.
import tailwind from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

/** The server that `npm run dev` passes requests to. */
const server = process.env["GLOVEBOX_URL"] ?? "http://127.0.0.1:8585";

export default defineConfig({
  // The server names the files below the path that it lies at.
  base: "./",
  plugins: [react(), tailwind()],
  server: { proxy: { "/api": { target: server, ws: true }, "/health": server, "/login": server } },
  build: {
    outDir: process.env["GLOVEBOX_WEB_OUT"] ?? "../crates/server/web-dist",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    rolldownOptions: {
      output: {
        // The licences of what is built in ask that their notes stay.
        comments: { legal: true },
        entryFileNames: "assets/app.js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/app[extname]",
      },
    },
  },
  test: { environment: "jsdom", include: ["src/**/*.test.{ts,tsx}"], testTimeout: 60_000 },
});
