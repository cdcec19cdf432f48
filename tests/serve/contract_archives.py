# What schemathesis puts into bodies that are no JSON: the bytes that it has made up, as they are.
import schemathesis


@schemathesis.serializer("application/gzip", "application/x-tar")
def archive(context, value):
    return value if isinstance(value, bytes) else str(value).encode()
