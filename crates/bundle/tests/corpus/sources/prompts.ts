// Prompts put together from parts.
import { createAgent } from "lightfast/agent";
import { createLightfast } from "lightfast/client";
import { gateway } from "@ai-sdk/gateway";

const TONE = "friendly";
const RULES = ["Answer briefly.", "Never guess.", `Stay ${TONE}.`];
const MODEL = "anthropic/claude-sonnet-4-5" as const;
const base = { temperature: 0.2, model: gateway(MODEL) };
const prompt = (role: string, ...more: string[]) => `You are the ${role}.\n${RULES.join("\n")}${more.length ? "\n" + more.join(" ") : ""}`;
const lines = `First line with \`backticks\`,
second line with \${no} hole,
\ttab, "quotes", 'quotes', \u2028 and ünïcödé \u{1F600}.`;

export default createLightfast({
  agents: {
    plain: createAgent({ ...base, name: "plain", system: lines }),
    joined: createAgent({ ...base, name: "joined", system: RULES.join("\n- ") }),
    raw: createAgent({ ...base, name: "raw", system: String.raw`C:\new\table` }),
    added: createAgent({ ...base, name: "added", system: "a" + 1 + true + null + ("  b ").trim() + "c".toUpperCase() }),
    called: createAgent({ ...base, name: "called", temperature: 1, system: prompt("clerk") }),
  },
  metadata: { name: "prompts", version: "1.0.0" },
});
