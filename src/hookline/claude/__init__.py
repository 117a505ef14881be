"""The protocol of Claude Code, Codex, Gemini CLI, Qwen Code and kagent, both ways: JSON on stdin, JSON or an exit code back.

events    the 33 events of Claude Code, and those of Codex, Gemini CLI, Qwen Code and kagent
tools     the tools of every client: their kinds, and the keys of their input
payload   HookContext to and from the JSON on stdin
hooks     command and shell hooks, run the way Claude Code does, and looked at before that
scope     the scope of an event in the journal, and one answer where several entries are asked about it
wire      host side: exit code and output of a hook to a HookResult
answer    hook side: an outcome in the format of the client that asked
matchers  the matchers of those settings, and permission rules
settings  the hooks of `.claude/settings.json`, as declarations (loads patterns; not needed to answer)
settings_file  that file as text: its lines, and edits that change no other byte
clients   the clients of `hookline install`: their settings files, and the entries that fail closed
entries   hookline's entries in such a file: found, added, removed
codex_trust  the hashes by which Codex trusts them
"""
