"""Ask Java, and write down what it says.

python tests/interop/security/record.py policies     recorded/policies.json, of the class that looks at policies
python tests/interop/security/record.py verdicts     recorded/verdicts.json, of a broker with users and policies
"""

from __future__ import annotations

import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[0]))

import parts
import policy_cases
import questions
import recorded
import rig
import secured
import verdicts


def head(command: str, **more: Any) -> dict[str, Any]:
    return {"made_by": f"python tests/interop/security/record.py {command}", "rocketmq": parts.VERSION, **more}


def policies(agent: rig.Agent) -> str:
    """The text of `recorded.POLICIES`: each case with why Java refuses it, "" where it doesn't."""
    cases = policy_cases.cases()
    answers = agent("auth.decide", cases=cases)
    found = [
        {**case, "refused": answer["refused"].rpartition(", ")[2]} for case, answer in zip(cases, answers, strict=True)
    ]
    return recorded.text(head("policies", seed=policy_cases.SEED), found)


def _asks(agent: rig.Agent, asked: list[questions.Question]) -> list[verdicts.Asks | str]:
    """What Java's class asks for each question, or that it can't read it."""
    requests = [{"code": q.code, "ext": q.ext, "body": b64encode(q.body.encode()).decode()} for q in asked]
    found = agent("auth.asks", cluster=secured.CLUSTER, requests=requests)
    return [answer["error"] if isinstance(answer, dict) else answer for answer in found]


def of_java(agent: rig.Agent, address: str) -> str:
    """The text of `recorded.VERDICTS`: each question, what it asks for on Java, and what Java's broker says to whom."""
    asked = questions.questions()
    asks = _asks(agent, asked)
    rows = verdicts.table(address, [(q, [] if isinstance(a, str) else a) for q, a in zip(asked, asks, strict=True)])
    found = [
        {**question._asdict(), "asks": wanted, "verdicts": row}
        for question, wanted, row in zip(asked, asks, rows, strict=True)
    ]
    return recorded.text(head("verdicts"), found)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent = rig.java_agent(Path(folder))
        try:
            if "policies" in sys.argv[1:]:
                recorded.POLICIES.write_text(policies(agent))
            if "verdicts" in sys.argv[1:]:
                cluster = secured.cluster("asked", "java", Path(folder))
                try:
                    recorded.VERDICTS.write_text(of_java(agent, cluster.broker))
                finally:
                    cluster.broker_process.kill()
                    cluster.namesrv_process.kill()
        finally:
            agent.stop()


if __name__ == "__main__":
    main()
