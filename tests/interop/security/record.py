"""Ask Java, and write down what it says.

python tests/interop/security/record.py policies     recorded/policies.json, of the class that looks at policies
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[0]))

import parts
import policy_cases
import recorded
import rig


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


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent = rig.java_agent(Path(folder))
        try:
            if "policies" in sys.argv[1:]:
                recorded.POLICIES.write_text(policies(agent))
        finally:
            agent.stop()


if __name__ == "__main__":
    main()
