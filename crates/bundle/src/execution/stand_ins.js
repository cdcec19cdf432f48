// What a bundle finds around it when it is run to be asked what it declares, or for one of its tools: stand-ins for the
// packages that it leaves outside. In: the bundle as a function. Out: `declare`, which writes down what the bundle
// exports as the text of another, plain bundle, and `tool`, which runs the code of one tool.
//
// Values of packages outside are recorded: each remembers how it was made, and is written down as that. Values of zod that
// is part of the bundle are written as the calls of zod that would make them. Nothing of this is believed: the text is
// read and checked as that of any bundle is, by a process that runs nothing.
const glovebox = (() => {
  'use strict';
  const MAX_TEXT = 900_000, MAX_DEPTH = 80, MAX_WRAPS = 3;
  const { stringify } = JSON;
  const realRequire = typeof require === 'function' ? require : undefined;
  /** Whether the code of a tool runs, which needs packages themselves. */
  let isToolRunning = false;
  /** What was made of the first argument of a known function: package, name, fields. */
  const made = new WeakMap();
  const configs = [];

  // ---- values of packages outside

  const recorded = new WeakMap();
  const KNOWN = /^(?:lightfast|zod|ai|@ai-sdk\/[\w-]+|@openrouter\/[\w-]+|ollama-ai-provider|workers-ai-provider)(?:\/|$)/;
  const ZOD = ('object strictObject looseObject string number boolean bigint date null undefined void any unknown never nan symbol literal enum '
    + 'nativeEnum array tuple record partialRecord looseRecord map set union xor discriminatedUnion intersection optional nullable nullish lazy '
    + 'preprocess pipe transform refine superRefine check describe meta readonly catch default _default prefault nonoptional coerce iso z '
    + 'email url uuid guid emoji nanoid cuid cuid2 ulid xid ksuid ipv4 ipv6 cidrv4 cidrv6 base64 base64url e164 jwt hostname hex int int32 uint32 '
    + 'float32 float64 int64 uint64 json stringbool templateLiteral function promise instanceof custom extend safeExtend merge pick omit partial '
    + 'required catchall keyof minLength maxLength length regex startsWith endsWith includes lowercase uppercase trim toLowerCase toUpperCase '
    + 'normalize gt gte lt lte minimum maximum positive negative nonpositive nonnegative multipleOf minSize maxSize size').split(' ');
  const shown = (how) => (how.pkg !== undefined ? how.pkg : how.get === undefined ? `${shown(how.from)}(...)` : `${shown(how.from)}.${how.get}`);
  const root = (how) => (how.pkg === undefined ? root(how.from) : how);

  function record(how) {
    const refuse = () => {
      throw new Error(`\`${shown(how)}\` is of a package that is not in the bundle; let the bundler put it in, or leave it out`);
    };
    const follow = (op) => {
      if (isToolRunning || !root(how).isKnown) refuse();
      return record({ from: how, ...op });
    };
    const proxy = new Proxy(() => {}, {
      get(_, key) {
        if (key === Symbol.toPrimitive) return () => `[${shown(how)}]`;
        if (typeof key === 'symbol' || key === 'then' || key === 'toJSON') return undefined;
        if (key === '__esModule') return true;
        if (key === 'prototype') return {};
        if (key === 'call') return (_self, ...args) => proxy(...args);
        if (key === 'apply') return (_self, args = []) => proxy(...args);
        if (key === 'bind') return (_self, ...first) => (...args) => proxy(...first, ...args);
        const own = how.own?.[key];
        return own === undefined ? record({ from: how, get: key, own: key === 'default' ? how.own : undefined }) : own;
      },
      apply: (_, _self, args) => follow({ args }),
      construct: (_, args) => follow({ args, isNew: true }),
      set: () => true,
      has: () => true,
      // Helpers of bundlers make objects with the prototype of a module, or copy its keys.
      getPrototypeOf: () => proxy,
      ownKeys: () => (how.pkg !== undefined && how.pkg.startsWith('zod') ? ZOD : Object.keys(how.own ?? {})),
      getOwnPropertyDescriptor: (_, key) => ({ value: proxy[key], enumerable: true, configurable: true, writable: true }),
    });
    recorded.set(proxy, how);
    return proxy;
  }

  const make = (pkg, name, fields) => {
    const value = { ...fields };
    made.set(value, { pkg, name, fields: value });
    return value;
  };
  const createLightfast = (config) => {
    const value = make('lightfast', 'createLightfast', config);
    configs.push(value);
    return value;
  };
  const tool = (fields) => make('ai', 'tool', fields);
  const createTool = (fields) => {
    const factory = () => make('lightfast', 'createTool', fields);
    made.set(factory, { pkg: 'lightfast', name: 'createTool', fields: { ...fields } });
    return factory;
  };
  const OWN = {
    lightfast: {
      createLightfast, createTool,
      createAgent: (fields) => make('lightfast', 'createAgent', fields),
      Lightfast: function Lightfast(config) { return createLightfast(config); },
    },
    ai: { tool, dynamicTool: tool },
  };
  const packages = new Map();
  const load = (name) => {
    const text = String(name);
    if (/^(?:node:)?(?:crypto|util|buffer|url)$/.test(text)) {
      return realRequire === undefined ? process.getBuiltinModule(text) : realRequire(text);
    }
    if (/^[./]/.test(text)) throw new Error(`\`${text}\` is a file that is not in the bundle`);
    if (!packages.has(text)) {
      const own = /^lightfast(?:\/|$)/.test(text) ? OWN.lightfast : /^(?:ai|@ai-sdk\/provider-utils)$/.test(text) ? OWN.ai : undefined;
      packages.set(text, record({ pkg: text, isKnown: KNOWN.test(text), own }));
    }
    return packages.get(text);
  };
  if (typeof process === 'undefined') {
    globalThis.process = {
      env: {}, argv: [], platform: 'linux', version: 'v20.0.0', versions: {}, cwd: () => '/', on() {}, nextTick: (work, ...args) => queueMicrotask(() => work(...args)),
    };
  }

  // ---- running the bundle

  const run = async (bundle) => {
    let exported = {};
    if (bundle.script === undefined) {
      const getters = {};
      await bundle.module(load, (more) => Object.assign(getters, more), async (name) => load(name), { url: 'file:///bundle.js' });
      for (const [name, get] of Object.entries(getters)) {
        try { exported[name] = get(); } catch { /* Never given a value. */ }
      }
    } else {
      const module = { exports: {} };
      const given = new Function('module', 'exports', 'require', '__filename', '__dirname', bundle.script)
        .call(module.exports, module, module.exports, load, '/bundle.js', '/');
      const value = module.exports;
      const isOne = typeof value === 'function' || made.has(value) || isConfig(value);
      exported = isOne ? { default: value } : { ...value };
      // A bundle for a page exports nothing, and gives the page a name.
      if (Object.keys(exported).length === 0 && given !== undefined) Object.assign(exported, ...Object.values(given).filter(isObject));
    }
    return exported;
  };

  const isObject = (value) => typeof value === 'object' && value !== null;
  const isConfig = (value) => made.get(value)?.name === 'createLightfast'
    || (isObject(value) && !made.has(value) && isObject(value.agents) && !Array.isArray(value.agents));
  const isTool = (value) => /^(?:tool|createTool)$/.test(made.get(value)?.name)
    || (isObject(value) && !Array.isArray(value) && ('inputSchema' in value || 'parameters' in value) && ('execute' in value || 'description' in value));
  const findConfig = (value, depth = 0) => {
    if (isConfig(value)) return value;
    if (!isObject(value) || made.has(value) || depth > MAX_WRAPS) return undefined;
    for (const inner of Object.values(value)) {
      const found = findConfig(inner, depth + 1);
      if (found !== undefined) return found;
    }
    return undefined;
  };
  // Where lightfast itself is in the bundle, its objects keep what they were given under names of their own.
  const partOf = (agent, ...names) => {
    for (const holder of [agent, agent.lightfastConfig, agent.config, agent.options, agent.vercelConfig]) {
      for (const name of names) if (isObject(holder) && holder[name] !== undefined) return holder[name];
    }
    return undefined;
  };
  const fieldsOf = (agent) => made.get(agent)?.fields
    ?? { name: partOf(agent, 'name'), system: partOf(agent, 'system', 'systemPrompt'), model: partOf(agent, 'model'), tools: partOf(agent, 'tools') };
  const toolsOf = (agent, context) => {
    const { tools } = fieldsOf(agent);
    return typeof tools === 'function' && !recorded.has(tools) ? tools(context) : tools;
  };
  /** `(context) => tool({...})`: the tool, when it is one. */
  const fromFactory = (value, context) => {
    if (typeof value !== 'function' || made.has(value) || recorded.has(value)) return value;
    try {
      const result = value(context);
      return isTool(result) ? result : value;
    } catch { return value; }
  };

  // ---- writing down

  const writer = () => {
    const lines = [], names = new Map(), open = new Set(), roots = new Map();
    let size = 0;
    const add = (text) => {
      size += text.length;
      if (size > MAX_TEXT) throw new RangeError(`what the bundle declares has more than ${MAX_TEXT} characters`);
      return text;
    };
    const from = (pkg) => {
      if (!roots.has(pkg)) {
        roots.set(pkg, `p${roots.size}`);
        lines.unshift(add(`import * as ${roots.get(pkg)} from ${stringify(pkg)};`));
      }
      return roots.get(pkg);
    };
    const opaque = (what) => `known_only_at_run_time_${String(what).replace(/\W+/g, '_')}`;
    /** A value under a name, so that what is used often is written once, and what contains itself ends. */
    const named = (key, write, zod) => {
      if (!names.has(key)) {
        const name = `v${names.size}`;
        names.set(key, name);
        open.add(key);
        const text = write();
        open.delete(key);
        lines.push(add(`const ${name} = ${text};`));
      } else if (open.has(key)) {
        return zod === undefined ? opaque('a value that contains itself') : `${from(zod)}.lazy(() => ${names.get(key)})`;
      }
      return names.get(key);
    };
    const key = (name) => (/^[A-Za-z_$][\w$]*$/.test(name) && name !== '__proto__' ? name : `[${stringify(name)}]`);
    const fields = (object, depth, each = value) => {
      const parts = [];
      for (const name of Object.keys(object)) {
        let text;
        try { text = each(object[name], depth + 1, name); } catch (error) {
          if (error instanceof RangeError) throw error;
          text = opaque('what throws when it is read');
        }
        parts.push(`${key(name)}: ${text}`);
      }
      return add(`{ ${parts.join(', ')} }`);
    };
    const list = (items, depth) => `[${items.map((item) => value(item, depth + 1)).join(', ')}]`;

    const recordText = (how) => {
      if (how.pkg !== undefined) return from(how.pkg);
      const before = recordName(how.from);
      if (how.get !== undefined) return /^[A-Za-z_$][\w$]*$/.test(how.get) ? `${before}.${how.get}` : `${before}[${stringify(how.get)}]`;
      const isLazy = how.from.get === 'lazy' && root(how).pkg.startsWith('zod');
      const args = how.args.map((arg) => (isLazy && typeof arg === 'function' ? `() => ${value(arg(), 1)}` : value(arg, 1)));
      return `${how.isNew ? 'new ' : ''}${before}(${args.join(', ')})`;
    };
    const recordName = (how) => (how.args === undefined ? recordText(how) : named(how, () => recordText(how), zodOf(how)));
    const zodOf = (how) => { const { pkg } = root(how); return pkg.startsWith('zod') ? pkg : undefined; };
    const toolText = (given, depth) => {
      const one = fromFactory(given, {});
      const about = made.get(one);
      if (about === undefined && !isTool(one)) return value(one, depth);
      const call = about === undefined ? `${from('ai')}.tool` : `${from(about.pkg)}.${about.name}`;
      return `${call}(${fields(about?.fields ?? one, depth, (part, inner, name) => {
        if (name === 'execute' && typeof part === 'function') return 'async () => 0';
        if (/^(?:inputSchema|outputSchema|parameters)$/.test(name)) {
          const schema = typeof part === 'function' && !recorded.has(part) && !made.has(part) ? part() : part;
          return value(schema, inner);
        }
        return value(part, inner);
      })})`;
    };
    const modelText = (model, depth) => {
      if (!isObject(model) || recorded.has(model) || typeof model.modelId !== 'string') return value(model, depth);
      const provider = String(model.provider ?? '').split('.')[0];
      const name = provider.replace(/-(\w)/g, (_, letter) => letter.toUpperCase());
      return /^[\w-]+$/.test(provider) ? `${from(`@ai-sdk/${provider}`)}.${name}(${stringify(model.modelId)})` : stringify(model.modelId);
    };
    const agentText = (agent, depth) => {
      if (recorded.has(agent) || !isObject(agent)) return value(agent, depth);
      const known = made.get(agent);
      if (known !== undefined && known.name !== 'createAgent') return value(agent, depth);
      const all = { ...fieldsOf(agent) };
      if (all.tools === undefined) delete all.tools;
      else all.tools = toolsOf(agent, {});
      return `${from('lightfast')}.createAgent(${fields(all, depth, (part, inner, name) => {
        if (name === 'model') return modelText(part, inner);
        if (name === 'tools' && isObject(part) && !Array.isArray(part)) return fields(part, inner, (one, next) => toolText(one, next));
        return value(part, inner);
      })})`;
    };
    const configText = (config, depth) => `${from('lightfast')}.createLightfast(${fields(config, depth, (part, inner, name) => (
      name === 'agents' && isObject(part) && !recorded.has(part) ? fields(part, inner, agentText) : value(part, inner)))})`;

    function value(it, depth = 0) {
      if (depth > MAX_DEPTH) return opaque('a value that nests too deeply');
      switch (typeof it) {
        case 'string': return add(stringify(it));
        case 'bigint': return `${it}n`;
        case 'symbol': return opaque('a symbol');
        case 'number': case 'boolean': case 'undefined': return String(it);
        case 'function':
          if (recorded.has(it)) return recordName(recorded.get(it));
          if (made.has(it)) return toolText(it, depth);
          return '() => 0';
        default:
      }
      if (it === null) return 'null';
      if (recorded.has(it)) return recordName(recorded.get(it));
      const about = made.get(it);
      if (about !== undefined) return about.name === 'createLightfast' ? configText(it, depth) : about.name === 'createAgent' ? agentText(it, depth) : toolText(it, depth);
      if (isObject(it._zod) || typeof it._def?.typeName === 'string') return zodText(it, depth);
      if (it[Symbol.for('vercel.ai.schema')] === true) return `${from('ai')}.jsonSchema(${value(it.jsonSchema, depth + 1)})`;
      if (typeof it['~standard']?.jsonSchema?.input === 'function') return value(it['~standard'].jsonSchema.input({ target: 'draft-2020-12' }), depth + 1);
      if (open.has(it)) return opaque('a value that contains itself');
      open.add(it);
      try {
        if (Array.isArray(it)) return add(list(it, depth));
        if (it instanceof RegExp) return `/${it.source}/${it.flags}`;
        const proto = Object.getPrototypeOf(it);
        if (proto === null || proto === Object.prototype) return fields(it, depth);
        return opaque(`an instance of ${proto.constructor?.name || 'a class'}`);
      } finally { open.delete(it); }
    }

    // ---- zod that is part of the bundle, versions 3 and 4, as the calls that would make it

    const zodText = (schema, depth) => named(schema, () => {
      const isNew = isObject(schema._zod);
      const calls = isNew ? zod4(schema._zod.def, schema, depth) + checks4(schema._zod.def) : zod3(schema._def, depth);
      return calls + about(schema, isNew, depth);
    }, isObject(schema._zod) ? 'zod' : 'zod/v3');
    const about = (schema, isNew, depth) => {
      if (!isNew) return schema._def.description === undefined ? '' : `.describe(${value(schema._def.description)})`;
      const registry = globalThis.__zod_globalRegistry;
      const meta = registry?.get?.(schema) ?? (typeof schema.meta === 'function' ? schema.meta() : undefined);
      return isObject(meta) && Object.keys(meta).length > 0 ? `.meta(${value({ ...meta }, depth + 1)})` : '';
    };
    const FORMATS = /^(?:email|url|uuid|guid|emoji|nanoid|cuid|cuid2|ulid|xid|ksuid|ipv4|ipv6|mac|cidrv4|cidrv6|base64|base64url|e164|jwt|hostname|hex|datetime|date|time|duration)$/;
    const formatText = (def) => {
      if (def.format === 'regex') return `.regex(${value(def.pattern)})`;
      if (def.format === 'starts_with') return `.startsWith(${value(def.prefix)})`;
      if (def.format === 'ends_with') return `.endsWith(${value(def.suffix)})`;
      if (def.format === 'includes') return `.includes(${value(def.includes)})`;
      if (def.format === 'lowercase' || def.format === 'uppercase') return `.${def.format}()`;
      if (FORMATS.test(def.format)) return `.${def.format}(${def.precision === undefined || def.precision === null ? '' : value({ precision: def.precision })})`;
      return '.refine(() => true)';
    };
    const NUMBERS = { safeint: 'int', int32: 'int32', uint32: 'uint32', float32: 'float32', float64: 'float64' };
    const checkText = (check, type) => {
      const def = check._zod?.def ?? {};
      switch (def.check) {
        case 'min_length': case 'min_size': return `.min(${value(def.minimum)})`;
        case 'max_length': case 'max_size': return `.max(${value(def.maximum)})`;
        case 'length_equals': return `.length(${value(def.length)})`;
        case 'greater_than': return type === 'date' ? '.refine(() => true)' : `.${def.inclusive ? 'min' : 'gt'}(${value(def.value)})`;
        case 'less_than': return type === 'date' ? '.refine(() => true)' : `.${def.inclusive ? 'max' : 'lt'}(${value(def.value)})`;
        case 'multiple_of': return `.multipleOf(${value(def.value)})`;
        case 'number_format': return /int/.test(def.format) ? '.int()' : '';
        case 'string_format': return formatText(def);
        // Those change the value, or say what `about` writes.
        case 'overwrite': case 'describe': case 'meta': return '';
        default: return '.refine(() => true)';
      }
    };
    /** Every type may have checks: a refinement of an enum, for instance. */
    const checks4 = (def) => (def.checks ?? []).map((check) => checkText(check, def.type)).join('');
    function zod4(def, schema, depth) {
      const z = from('zod');
      const inner = (one) => value(one, depth + 1);
      const coerce = def.coerce === true ? `${z}.coerce` : z;
      switch (def.type) {
        case 'string':
          return `${coerce}.string()${def.check === 'string_format' ? formatText(def) : ''}`;
        case 'number':
          return `${coerce === z && def.check === 'number_format' ? `${z}.${NUMBERS[def.format] ?? 'number'}` : `${coerce}.number`}()`;
        case 'bigint': case 'boolean': case 'date': return `${coerce}.${def.type}()`;
        case 'null': case 'undefined': case 'void': case 'any': case 'unknown': case 'never': case 'nan': case 'symbol': return `${z}.${def.type}()`;
        case 'literal': return `${z}.literal(${list(def.values, depth)})`;
        case 'enum': return `${z}.enum(${value({ ...def.entries }, depth + 1)})`;
        case 'object': {
          const shape = fields(def.shape, depth, inner);
          const rest = def.catchall;
          const kind = rest === undefined ? '' : rest._zod.def.type === 'never' ? '.strict()' : rest._zod.def.type === 'unknown' ? '.loose()' : `.catchall(${inner(rest)})`;
          return `${z}.object(${shape})${kind}`;
        }
        case 'array': return `${z}.array(${inner(def.element)})`;
        case 'tuple': return `${z}.tuple(${list(def.items, depth)}${def.rest ? `, ${inner(def.rest)}` : ''})`;
        case 'record': {
          const isPartial = def.keyType._zod.def.type === 'enum' && def.keyType._zod.values === undefined;
          return `${z}.${isPartial ? 'partialRecord' : 'record'}(${inner(def.keyType)}, ${inner(def.valueType)})`;
        }
        case 'union': {
          const options = list(def.options, depth);
          if (def.discriminator !== undefined) return `${z}.discriminatedUnion(${value(def.discriminator)}, ${options})`;
          return `${z}.${def.inclusive === false ? 'xor' : 'union'}(${options})`;
        }
        case 'intersection': return `${z}.intersection(${inner(def.left)}, ${inner(def.right)})`;
        case 'optional': case 'nullable': case 'nonoptional': case 'readonly': return `${inner(def.innerType)}.${def.type}()`;
        case 'default': case 'prefault': return `${inner(def.innerType)}.${def.type}(${inner(def.defaultValue)})`;
        case 'catch': {
          let fallback;
          try { fallback = def.catchValue({ error: { issues: [] }, issues: [], value: undefined, input: undefined }); } catch { return `${inner(def.innerType)}.catch(() => 0)`; }
          return `${inner(def.innerType)}.catch(${inner(fallback)})`;
        }
        case 'pipe':
          if (def.out._zod.def.type === 'transform') return `${inner(def.in)}.transform(() => 0)`;
          if (def.in._zod.def.type === 'transform') return `${z}.preprocess(() => 0, ${inner(def.out)})`;
          return `${inner(def.in)}.pipe(${inner(def.out)})`;
        case 'transform': return `${z}.transform(() => 0)`;
        case 'lazy': return `${z}.lazy(() => ${inner(schema._zod.innerType ?? def.getter())})`;
        case 'custom': return `${z}.any().refine(() => true)`;
        case 'template_literal': return `${z}.templateLiteral([])`;
        default: return `${z}.${/^\w+$/.test(def.type) ? def.type : 'symbol'}()`;
      }
    }
    const STRING3 = { min: 'min', max: 'max', length: 'length', regex: 'regex', startsWith: 'startsWith', endsWith: 'endsWith', includes: 'includes' };
    const checks3 = (checks = []) => checks.map((check) => {
      if (check.kind === 'regex') return `.regex(${value(check.regex)})`;
      if (STRING3[check.kind] !== undefined && check.inclusive === undefined) return `.${check.kind}(${value(check.value)})`;
      if (check.kind === 'min') return `.${check.inclusive ? 'min' : 'gt'}(${value(check.value)})`;
      if (check.kind === 'max') return `.${check.inclusive ? 'max' : 'lt'}(${value(check.value)})`;
      if (check.kind === 'multipleOf') return `.multipleOf(${value(check.value)})`;
      if (check.kind === 'ip' || check.kind === 'cidr') return check.version === undefined ? `.${check.kind}()` : `.${check.kind}${check.version}()`;
      return /^\w+$/.test(check.kind) ? `.${check.kind}()` : '.refine(() => true)';
    }).join('');
    const bounds3 = (def) => ['min', 'max', 'exact'].map((name) => {
      const bound = def[`${name}Length`];
      return bound === null || bound === undefined ? '' : `.${name === 'exact' ? 'length' : name}(${value(bound.value)})`;
    }).join('');
    function zod3(def, depth) {
      const z = from('zod/v3');
      const inner = (one) => value(one, depth + 1);
      const name = def.typeName.replace(/^Zod/, '');
      switch (name) {
        case 'String': return `${def.coerce ? `${z}.coerce` : z}.string()${checks3(def.checks)}`;
        case 'Number': return `${def.coerce ? `${z}.coerce` : z}.number()${checks3(def.checks)}`;
        case 'Boolean': case 'Date': case 'Null': case 'Undefined': case 'Void': case 'Any': case 'Unknown': case 'Never': return `${z}.${name.toLowerCase()}()`;
        case 'BigInt': return `${z}.bigint()`;
        case 'NaN': return `${z}.nan()`;
        case 'Literal': return `${z}.literal(${inner(def.value)})`;
        case 'Enum': return `${z}.enum(${list(def.values, depth)})`;
        case 'NativeEnum': return `${z}.nativeEnum(${value({ ...def.values }, depth + 1)})`;
        case 'Object': {
          const keys = { strict: '.strict()', passthrough: '.passthrough()' }[def.unknownKeys] ?? '';
          const rest = def.catchall._def.typeName === 'ZodNever' ? '' : `.catchall(${inner(def.catchall)})`;
          return `${z}.object(${fields(def.shape(), depth, inner)})${keys}${rest}`;
        }
        case 'Array': return `${z}.array(${inner(def.type)})${bounds3(def)}`;
        case 'Tuple': return `${z}.tuple(${list(def.items, depth)})${def.rest ? `.rest(${inner(def.rest)})` : ''}`;
        case 'Record': return `${z}.record(${inner(def.keyType)}, ${inner(def.valueType)})`;
        case 'Union': return `${z}.union(${list(def.options, depth)})`;
        case 'DiscriminatedUnion': return `${z}.discriminatedUnion(${value(def.discriminator)}, ${list([...def.options], depth)})`;
        case 'Intersection': return `${z}.intersection(${inner(def.left)}, ${inner(def.right)})`;
        case 'Optional': case 'Nullable': case 'Readonly': return `${inner(def.innerType)}.${name.toLowerCase()}()`;
        case 'Default': return `${inner(def.innerType)}.default(${inner(def.defaultValue())})`;
        case 'Catch': return `${inner(def.innerType)}.catch(() => 0)`;
        case 'Branded': return inner(def.type);
        case 'Effects':
          if (def.effect.type === 'refinement') return `${inner(def.schema)}.refine(() => true)`;
          return def.effect.type === 'transform' ? `${inner(def.schema)}.transform(() => 0)` : `${z}.preprocess(() => 0, ${inner(def.schema)})`;
        case 'Pipeline': return `${inner(def.in)}.pipe(${inner(def.out)})`;
        case 'Lazy': return `${z}.lazy(() => ${inner(def.getter())})`;
        default: return `${z}.${/^\w+$/.test(name) ? name.toLowerCase() : 'symbol'}()`;
      }
    }

    return {
      write: (name, it) => {
        const text = isConfig(it) ? (made.has(it) ? value(it) : configText(it, 0)) : isTool(fromFactory(it, {})) ? toolText(it, 0) : value(it);
        const local = `e${lines.length}`;
        lines.push(add(`const ${local} = ${text};`), add(`export { ${local} as ${stringify(name)} };`));
      },
      text: () => `${lines.join('\n')}\n`,
    };
  };

  return {
    /** What the bundle declares, as the text of a plain one. */
    declare: (bundle) => async () => {
      const exported = await run(bundle);
      const out = writer();
      const config = findConfig(exported) ?? configs[0];
      // Every configuration that is exported: several are refused as in any bundle.
      const several = Object.entries(exported).map(([name, it]) => [name, findConfig(it)]).filter(([, found]) => found !== undefined && found !== config);
      if (config !== undefined) {
        out.write('default', config);
        for (const [name, other] of several) out.write(name === 'default' ? 'other' : name, other);
      } else {
        for (const [name, it] of Object.entries(exported)) if (isTool(fromFactory(it, {}))) out.write(name, it);
      }
      return out.text();
    },
    /** The code of one tool: `{ agent, tool, isBare }`; the agent is null where the bundle exports the tool itself. */
    tool: (bundle, place) => async (input, context) => {
      const exported = await run(bundle);
      const holder = place.agent == null ? exported : toolsOf((findConfig(exported) ?? configs[0]).agents[place.agent], context);
      const found = holder[place.tool];
      const one = place.isBare ? found : fromFactory(found, context);
      isToolRunning = true;
      if (place.isBare) return found(input);
      const fields = made.get(one)?.fields ?? one;
      return fields.execute(input, context);
    },
  };
})();
