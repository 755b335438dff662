"""Index of page contents: a tree of exact 64-token blocks.

A node stands for one page and for the whole token chain from the root to it. Looking up a block hashes
its bytes to find a child and compares them to accept it (both are what a dict does), so a collision
costs time and never yields a hit.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence

from ninfer_jax.config import PAGE_SIZE

ROOT_PAGE = -1


class Node:
    """One indexed page. ``children`` is keyed by the exact bytes of the next block."""

    __slots__ = ("block", "children", "page", "parent")

    def __init__(self, parent: "Node | None", block: bytes, page: int) -> None:
        self.parent = parent
        self.block = block
        self.page = page
        self.children: dict[bytes, Node] = {}


def block_bytes(tokens: Sequence[int]) -> bytes:
    """The exact identity of one block of token ids."""
    return array("i", tokens).tobytes()


class PrefixCache:
    """The tree, and where each indexed page is in it. Holds no references: the allocator does."""

    def __init__(self, key: Callable[[Sequence[int]], bytes] = block_bytes) -> None:
        self._key = key
        self.root = Node(None, b"", ROOT_PAGE)
        self._nodes: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, page: int) -> bool:
        return page in self._nodes

    def pages(self) -> Iterator[int]:
        return iter(self._nodes)

    def match(self, tokens: Sequence[int], max_tokens: int) -> list[Node]:
        """The longest chain of whole pages that equals a prefix of ``tokens``, at most ``max_tokens``
        of it. Modifies nothing; the nodes stay valid until the next ``insert`` or ``remove``."""
        chain: list[Node] = []
        node = self.root
        for end in range(PAGE_SIZE, max_tokens + 1, PAGE_SIZE):
            child = node.children.get(self._key(tokens[end - PAGE_SIZE : end]))
            if child is None:
                break
            chain.append(child)
            node = child
        return chain

    def insert(self, parent: Node, block: Sequence[int], page: int) -> Node:
        """Index ``page`` as the block after ``parent``. Where that block is indexed already, the
        existing node is returned and ``page`` stays outside the index."""
        key = self._key(block)
        node = parent.children.get(key)
        if node is None:
            assert page not in self._nodes, f"page {page} is indexed twice"
            node = Node(parent, key, page)
            parent.children[key] = node
            self._nodes[page] = node
        return node

    def is_attached(self, node: Node) -> bool:
        return node is self.root or self._nodes.get(node.page) is node

    def remove(self, page: int) -> list[int]:
        """Take a page and everything below it out of the index; returns those pages."""
        top = self._nodes[page]
        assert top.parent is not None
        del top.parent.children[top.block]
        removed: list[int] = []
        stack = [top]
        while stack:
            node = stack.pop()
            del self._nodes[node.page]
            removed.append(node.page)
            stack.extend(node.children.values())
            node.children.clear()
        return removed

    def check(self) -> None:
        """Raise AssertionError unless the tree and the page map describe the same nodes."""
        seen: set[int] = set()
        stack = [self.root]
        while stack:
            node = stack.pop()
            for key, child in node.children.items():
                assert child.parent is node, "a node has lost its parent"
                assert child.block == key, "a node is filed under another block"
                assert child.page not in seen, f"page {child.page} is indexed twice"
                seen.add(child.page)
                stack.append(child)
        assert seen == set(self._nodes), "index and page map differ"
