"""Reads recorded streams with the official clients of Python, one line of JSON for each.

    official.py URL NAME...

The first word of a name is the format. Each stream is answered to one request to URL, in this order.
"""

import json
import sys
import warnings

import anthropic
import openai

# They are about fields of another type, which the answers show.
warnings.simplefilter("ignore")

ASK = [{"role": "user", "content": "go"}]
OPTIONS = {"api_key": "planted", "max_retries": 0}


def read_chat(url):
    with openai.OpenAI(base_url=url, **OPTIONS).chat.completions.stream(model="m", messages=ASK) as stream:
        completion = stream.until_done().get_final_completion()
    choice, usage = completion.choices[0], completion.usage
    return {
        "text": choice.message.content or choice.message.refusal or "",
        "thoughts": "",
        "calls": [
            {"name": call.function.name, "arguments": call.function.arguments}
            for call in choice.message.tool_calls or []
        ],
        "stop": choice.finish_reason,
        "usage": [usage.prompt_tokens, usage.completion_tokens] if usage else None,
    }


def read_responses(url):
    with openai.OpenAI(base_url=url, **OPTIONS).responses.stream(model="m", input="go") as stream:
        last = None
        for event in stream:
            if event.type in ("response.completed", "response.incomplete"):
                last = event.response
    return {
        "text": last.output_text or "".join(
            part.refusal
            for item in last.output
            if item.type == "message"
            for part in item.content
            if part.type == "refusal"
        ),
        "thoughts": "".join(
            part.text for item in last.output if item.type == "reasoning" for part in item.summary
        ),
        "calls": [
            {"name": item.name, "arguments": item.arguments}
            for item in last.output
            if item.type == "function_call"
        ],
        "stop": last.incomplete_details.reason if last.incomplete_details else last.status,
        "usage": [last.usage.input_tokens, last.usage.output_tokens] if last.usage else None,
    }


def read_anthropic(url):
    client = anthropic.Anthropic(base_url=url, **OPTIONS)
    with client.messages.stream(model="m", max_tokens=100, messages=ASK) as stream:
        message = stream.get_final_message()
    blocks = message.content
    usage = message.usage
    return {
        "text": "".join(block.text for block in blocks if block.type == "text"),
        "thoughts": "".join(block.thinking for block in blocks if block.type == "thinking"),
        "calls": [
            {"name": block.name, "arguments": block.input} for block in blocks if block.type == "tool_use"
        ],
        "stop": message.stop_reason,
        "usage": [usage.input_tokens + (usage.cache_read_input_tokens or 0), usage.output_tokens],
    }


READERS = {"chat": read_chat, "responses": read_responses, "anthropic": read_anthropic}
for name in sys.argv[2:]:
    try:
        answer = READERS[name.split("-")[0]](sys.argv[1])
    except Exception as error:  # Every failure of a client is an outcome.
        answer = {"error": type(error).__name__, "detail": str(error)[:200]}
    # Half a character cannot be printed.
    line = json.dumps({"name": name, **answer}, ensure_ascii=False)
    print(line.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
