"""What `make test CHANGED=1` runs."""

from pathlib import Path

import impact


def project(root: Path) -> Path:
    files = {
        "src/perseid/__init__.py": "",
        "src/perseid/wire/__init__.py": "",
        "src/perseid/wire/frame.py": "",
        "src/perseid/wire/rpc.py": "from perseid.wire import frame",
        "src/perseid/net/__init__.py": "",
        "src/perseid/net/driver.py": "def run():\n    import perseid.wire.rpc",
        "src/perseid/cli/__init__.py": "",
        "src/perseid/cli/main.py": "from perseid.net.driver import run",
        "tests/conftest.py": "",
        "tests/wire/test_frame.py": "from perseid.wire.frame import x",
        "tests/net/__init__.py": "",
        "tests/net/world.py": "import perseid.net.driver",
        "tests/net/test_driver.py": "from .world import x",
        "tests/net/deep/test_deep.py": "",
        "tests/net/deep/conftest.py": "from tests.net import world",
        "tests/cli/test_servers.py": "PERSEID = ['-m', 'perseid.cli.main']",
        "tests/data/test_data.py": "",
        "tests/docs/test_page.py": "",
        "tests/examples/test_examples.py": "EXAMPLES = 'there' / \"examples\"",
        "examples/flights.py": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_change_reaches_what_imports_it_and_what_names_it(tmp_path: Path) -> None:
    root = project(tmp_path)
    driver = ["tests/cli/test_servers.py", "tests/net/deep/test_deep.py", "tests/net/test_driver.py", "tests/tidy"]
    assert impact.reached(root, ["src/perseid/net/driver.py"]) == driver
    assert impact.reached(root, ["src/perseid/wire/rpc.py"]) == driver
    assert impact.reached(root, ["src/perseid/wire/frame.py"]) == [*driver, "tests/wire/test_frame.py"]
    assert impact.reached(root, ["tests/net/world.py"]) == [n for n in driver if "servers" not in n]
    assert impact.reached(root, ["src/perseid/cli/main.py"]) == ["tests/cli/test_servers.py", "tests/tidy"]


def test_a_package_reaches_what_imports_a_module_of_it(tmp_path: Path) -> None:
    assert "tests/wire/test_frame.py" in impact.reached(project(tmp_path), ["src/perseid/wire/__init__.py"])


def test_what_is_no_module_reaches_what_stands_beside_it(tmp_path: Path) -> None:
    root = project(tmp_path)
    assert impact.reached(root, ["tests/data/vectors.json"]) == ["tests/data/test_data.py", "tests/tidy"]
    assert impact.reached(root, ["examples/flights.py"]) == ["tests/examples/test_examples.py", "tests/tidy"]
    assert impact.reached(root, ["docs/testing.md"]) == ["tests/tidy"]
    assert impact.reached(root, ["docs/tutorials/page.md"]) == ["tests/docs/test_page.py", "tests/tidy"]
    for name in ("pyproject.toml", "tests/conftest.py", "src/perseid/core/batch.pxd", "src/perseid/gone.py"):
        assert impact.reached(root, [name]) == ["tests"]
    assert impact.reached(root, []) == []


def test_a_change_of_the_broker_reaches_its_tests_and_no_decoders() -> None:
    reached = set(impact.reached(impact.ROOT, ["src/perseid/broker/node.py"]))
    assert {"tests/broker/kernel/test_node.py", "tests/sim/test_seeds.py", "tests/cli/test_servers.py"} <= reached
    assert not {name for name in reached if name.startswith("tests/wire/")}
