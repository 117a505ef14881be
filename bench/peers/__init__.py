"""What hookline is compared with: one module per framework, each run in its own environment."""

from typing import NamedTuple


class Peer(NamedTuple):
    name: str
    module: str
    requirements: tuple[str, ...] = ()  # none: the interpreter that runs the benchmark
    group: str = "loop"  # the table that says so where the peer could not be measured at all
    note: str = ""


PEERS = (
    Peer("hookline", "hookline_case", group="dispatch"),
    Peer("bare", "peers.bare", group="dispatch"),
    Peer("openai-agents", "peers.openai_agents", ("openai-agents==0.24.0",)),
    Peer("google-adk", "peers.google_adk", ("google-adk==2.13.0",)),
    Peer("pydantic-ai", "peers.pydantic_ai", ("pydantic-ai-slim==2.66.0",)),
    Peer(
        "langchain",
        "peers.langchain",
        ("langchain==1.4.7",),
        note="1.4.8 to 1.4.10 ask for a certifi that the package index does not have",
    ),
    Peer("strands", "peers.strands", ("strands-agents==1.62.0",)),
    Peer("pluggy", "peers.pluggy", ("pluggy==1.7.0",), group="dispatch"),
)
