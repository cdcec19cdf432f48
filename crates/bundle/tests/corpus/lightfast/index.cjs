// The framework's interface, enough to run a bundle and look at what it declares.
exports.createLightfast = (config) => ({ isConfig: true, ...config });
exports.createAgent = (options) => ({ isAgent: true, ...options });
exports.createTool = (declared) => (context) => ({
  description: declared.description,
  inputSchema: declared.inputSchema,
  outputSchema: declared.outputSchema,
  execute: (input) => declared.execute(input, context),
});
