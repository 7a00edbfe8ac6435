"""Child processes are started in one place, which keeps the caller's directory off their path of imports."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTER = ROOT / "tierfs/base/system/processes.py"
MODULES = {"subprocess", "multiprocessing", "pty", "commands"}
CALLS = re.compile(
    r"os\.(fork|forkpty|system|popen|exec\w+|spawn\w+|posix_spawnp?)|trio\.(run_process|lowlevel\.open_process)"
    r"|\w*\.?ProcessPoolExecutor|asyncio\.(create_)?subprocess\w*|\w+\.subprocess_(exec|shell)"
)


def other_ways(tree: ast.Module) -> list[str]:
    """What a module imports or calls that starts a process."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name for name in names if name.split(".")[0] in MODULES or CALLS.fullmatch(name)]
        elif isinstance(node, ast.Attribute) and CALLS.fullmatch(ast.unparse(node)):
            found.append(ast.unparse(node))
    return found


def test_no_other_module_starts_processes() -> None:
    paths = [path for path in [*ROOT.glob("*.py"), *ROOT.glob("tierfs/**/*.py")] if path != STARTER]
    others = {str(path.relative_to(ROOT)): other_ways(ast.parse(path.read_text())) for path in paths}
    assert {path: ways for path, ways in others.items() if ways} == {}


def test_the_starter_is_seen() -> None:
    assert other_ways(ast.parse(STARTER.read_text())) == ["subprocess", "os.execv"]
    for line in (
        "import multiprocessing.pool",
        "from os import execv",
        "import trio; trio.run_process(1)",
        "os.fork()",
    ):
        assert other_ways(ast.parse(line)), line


def test_scripts_start_no_python_by_their_shebang() -> None:
    """A script's own directory would be first on its path of imports."""
    for path in filter(Path.is_file, (ROOT / "mount_helpers").iterdir()):
        assert path.read_text().startswith("#!/usr/bin/env bash\n"), path
