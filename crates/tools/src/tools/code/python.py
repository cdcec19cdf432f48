# Executes cells in one namespace. In: one JSON object a line, {"token", "source"}. Out: for each cell a
# mark, what it prints and the value of its last expression, and another mark that says how it ended.
def _run():
    import ast, json, linecache, os, signal, sys, traceback

    link = os.fdopen(os.dup(0), "rb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(1, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main = sys.modules["__main__"].__dict__
    main.pop("_run", None)

    def mark(token, word):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os.write(1, ("\x1e%s %s\n" % (token, word)).encode())

    for number, line in enumerate(link, 1):
        cell = json.loads(line)
        token, source = cell["token"], cell["source"]
        name = "<cell %d>" % number
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        word, leaving = "ok", None
        mark(token, "begin")
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            tree = ast.parse(source, name)
            last = None
            if tree.body and isinstance(tree.body[-1], ast.Expr):
                last = ast.Expression(tree.body.pop().value)
            exec(compile(tree, name, "exec"), main)
            if last is not None:
                value = eval(compile(last, name, "eval"), main)
                if value is not None:
                    main["_"] = value
                    print(repr(value))
        except SystemExit as end:
            leaving = end
        except BaseException as error:
            word = "failed"
            own = error.__traceback__.tb_next
            if isinstance(error, SyntaxError) and error.filename == name:
                own = None
            try:
                traceback.print_exception(type(error), error, own)
            except BaseException:
                print(type(error))
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        mark(token, word)
        if leaving is not None:
            raise leaving


_run()
