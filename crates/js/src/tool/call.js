// What every engine does around one call: what the tool is told, and what it threw. In: the serializer of `serialize.js`.
// Everything used here is taken before the tool's code runs, and nothing goes through iterators. The call itself stands
// in each engine: a promise in between would be one whose `then` a tool could have replaced.
(serializer) => {
  'use strict';
  const { apply, defineProperty, getOwnPropertyDescriptor } = Reflect;
  const { parse } = JSON;
  const bound = (f) => (self, ...args) => apply(f, self, args);
  const slice = bound(String.prototype.slice);
  const wellFormed = bound(String.prototype.toWellFormed);
  const Text = String;
  const own = (object, name, value) => {
    if (getOwnPropertyDescriptor(object, name) === undefined)
      defineProperty(object, name, { value, writable: true, configurable: true, enumerable: true });
  };
  const cut = (text, max) => wellFormed(text.length > max ? `${slice(text, 0, max)}...` : text);
  const textOf = (read, max) => {
    try {
      const value = read();
      return value === undefined || value === null ? '' : cut(Text(value), max);
    } catch {
      return '';
    }
  };

  return {
    own,
    // What reading gives, as text of at most so many characters; nothing when it throws.
    textOf,
    // Both shapes of a second argument in one: the runtime context, and the options of the AI SDK.
    context: (text, callId) => {
      const context = parse(text);
      own(context, 'toolCallId', callId);
      own(context, 'messages', []);
      return context;
    },
    // Of what was thrown: kind, name, message, stack.
    describe: (thrown) => {
      const refusal = serializer.refusal(thrown);
      if (refusal !== undefined) return [refusal[0], '', refusal[1], ''];
      if ((typeof thrown !== 'object' && typeof thrown !== 'function') || thrown === null)
        return ['tool', '', `threw ${cut(Text(thrown), 8000)}`, ''];
      let message = textOf(() => thrown.message, 8000);
      if (message === '') message = `threw ${textOf(() => thrown, 8000) || 'an object'}`;
      return ['tool', textOf(() => thrown.name, 200), message, textOf(() => thrown.stack, 64000)];
    },
  };
}
