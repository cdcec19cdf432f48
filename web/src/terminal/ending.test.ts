import { describe, expect, it } from "vitest";
import { describeEnd } from "./ending";

describe("the end of a shell", () => {
  it("is told by its exit, its signal or an error", () => {
    expect(describeEnd('{"exit":{"code":3,"signal":null}}')).toEqual({ kind: "ended", text: "The shell ended with exit 3." });
    expect(describeEnd('{"exit":{"code":null,"signal":9}}')).toEqual({ kind: "ended", text: "The shell was ended by signal 9." });
    expect(describeEnd('{"error":{"code":"lost","message":"the sandbox is gone"}}')).toEqual({
      kind: "lost",
      text: "The shell was lost: the sandbox is gone.",
    });
  });

  it("is not told by anything else", () => {
    for (const text of ["", "null", "{}", '{"error":{}}', "{"]) expect(describeEnd(text)).toBeNull();
  });
});
