"""An import goes down a layer or stays in it, never up; and the lower layers stay free of jax."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent

LAYERS = {
    "errors": 0, "types": 0, "config": 0, "json_values": 0, "cache_home": 0,
    "kernels": 1,
    "models": 2,
    "artifact": 3, "cache": 3, "text": 3, "media": 3,
    "engine": 4, "observe": 4,
    "server": 5,
    "cli": 6,
}  # fmt: skip
NO_JAX = {part for part, layer in LAYERS.items() if layer == 0} | {
    "cache",
    "text",
    "media",
    "observe",
    "server",
}
JAX = {"jax", "jaxlib", "flax", "orbax", "jax_triton"}


def part_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    if parts[0] in ("server", "kernels"):
        return parts[0]
    return parts[1].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Absolute module names imported anywhere in a file, type-checking blocks aside."""
    tree = ast.parse(path.read_text())
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for child in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def sources() -> list[Path]:
    files = [p for folder in ("ninfer_jax", "server", "kernels") for p in (ROOT / folder).rglob("*.py")]
    linked = (ROOT / "ninfer_jax/server", ROOT / "ninfer_jax/kernels")
    return [p for p in files if not any(p.is_relative_to(link) for link in linked)]


def test_sources_are_found() -> None:
    assert len(sources()) > 10


def test_imports_go_down() -> None:
    wrong = []
    for path in sources():
        part = part_of(path)
        if part == "__init__" or part == "__main__":
            continue
        for name in imports(path):
            if not name.startswith("ninfer_jax."):
                continue
            target = name.split(".")[1]
            if target in LAYERS and LAYERS[target] > LAYERS[part]:
                wrong.append(f"{path.relative_to(ROOT)} ({part}) imports {name}")
    assert not wrong, "\n".join(wrong)


def test_lower_layers_have_no_jax() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources()
        if part_of(path) in NO_JAX
        for name in imports(path)
        if name.split(".")[0] in JAX
    ]
    assert not wrong, "\n".join(wrong)
