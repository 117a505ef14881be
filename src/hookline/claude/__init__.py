"""The claude-command protocol, both ways: JSON on stdin, JSON or an exit code as the answer.

events     the 33 events of Claude Code, and the names that Codex, Gemini CLI and kagent have for the same
tools      what each of them calls its tools, the kind of each, and the keys of its input
payload    HookContext to and from the JSON on stdin
reading    as host: what a hook's exit code and output mean
answering  as hook: an outcome in the words of the tool that asked
settings   the hooks of `.claude/settings.json`, as declarations (loads patterns; not needed to answer)

Nothing is started here: values in, values out.
"""
