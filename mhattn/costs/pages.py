"""Pages of a KV cache: who has which, counted by references. Only numbers of pages, no tensor."""

from collections.abc import Hashable

from mhattn.costs import integers as check

__all__ = ["PagePool"]


# --8<-- [start:PagePool]
class PagePool:
    """Hands out pages of memory, each with as many places as tokens, and takes them back.

    A sequence has a table: a list with the page of its tokens 0 to size - 1, of the next size
    tokens, and so on. Several tables may name the same page; whoever writes to it first gets a
    copy. Full pages of a prompt can be kept under a key, for others that begin the same; those
    that only the pool still keeps are given away when no page is free, oldest first.

    Args:
        pages: how many there are.
        size: tokens on a page.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is less than 1, or as each method says.
        MemoryError: by `take` and `write`, if all pages are in use.

    Examples:
        >>> pool, table = PagePool(pages=4, size=2), []
        >>> for token in range(3):
        ...     _ = pool.write(table, token)
        >>> table, pool.available
        ([0, 1], 2)
    """

    def __init__(self, pages: int, size: int) -> None:
        check.positive(pages=pages, size=size)
        self.size = size
        self.count = [0] * pages  # how many refer to each page
        self.kept: dict[Hashable, int] = {}
        self._free = list(reversed(range(pages)))

    @property
    def used(self) -> int:
        """Pages that somebody refers to, the pool itself included."""
        return len(self.count) - len(self._free)

    @property
    def available(self) -> int:
        """Pages that are free, or that only the pool keeps."""
        return len(self._free) + sum(self.count[page] == 1 for page in self.kept.values())

    def take(self) -> int:
        """Hand out a page.

        Returns:
            Its number.

        Raises:
            MemoryError: all pages are in use.
        """
        if not self._free:
            self._forget_oldest()
        page = self._free.pop()
        self.count[page] = 1
        return page

    def share(self, page: int) -> int:
        """Note that one more table has this page.

        Args:
            page: its number.

        Returns:
            The same number.

        Raises:
            ValueError: nobody has this page.

        Examples:
            >>> pool = PagePool(pages=2, size=4)
            >>> pool.share(pool.take()), pool.count
            (0, [2, 0])
        """
        self._check_used(page)
        self.count[page] += 1
        return page

    def give_back(self, page: int) -> None:
        """Note that one table less has this page; the last one frees it.

        Args:
            page: its number.

        Raises:
            ValueError: nobody has this page.

        Examples:
            >>> pool = PagePool(pages=2, size=4)
            >>> pool.give_back(pool.take())
            >>> pool.used
            0
        """
        self._check_used(page)
        self.count[page] -= 1
        if self.count[page] == 0:
            self._free.append(page)

    def write(self, table: list[int], token: int) -> tuple[int, int] | None:
        """Make sure that a token has a place that no other table has.

        Args:
            table: of the sequence; a page is added to it, or replaced.
            token: its position in the sequence.

        Returns:
            None, or two pages: the first has to be copied to the second before anybody writes.

        Raises:
            MemoryError: all pages are in use.
            ValueError: the table ends before the token's page.

        Examples:
            Two tables with one page: the first to write gets another.

            >>> pool = PagePool(pages=2, size=4)
            >>> one = [pool.take()]
            >>> other = [pool.share(one[0])]
            >>> pool.write(one, 3), one, other
            ((0, 1), [1], [0])
        """
        index = token // self.size
        if index > len(table):
            raise ValueError(f"token must be at most {len(table) * self.size}, got {token}")
        if index == len(table):
            table.append(self.take())
            return None
        old = table[index]
        if self.count[old] == 1:
            return None
        table[index] = self.take()
        self.give_back(old)
        return old, table[index]

    def keep(self, key: Hashable, page: int) -> None:
        """Keep a full page for others that have the same tokens up to its end.

        Args:
            key: what tells these tokens.
            page: its number. If there is a page with this key, nothing is done.

        Raises:
            ValueError: nobody has this page.

        Examples:
            >>> pool = PagePool(pages=2, size=4)
            >>> pool.keep("the rules", pool.take())
            >>> pool.count
            [2, 0]
        """
        if key not in self.kept:
            self.kept[key] = self.share(page)

    def find(self, key: Hashable) -> int | None:
        """Find a page that was kept.

        Args:
            key: what tells its tokens.

        Returns:
            Its number, or None. Who wants it says so by `share`.

        Examples:
            >>> pool = PagePool(pages=2, size=4)
            >>> pool.keep("the rules", pool.take())
            >>> pool.find("the rules"), pool.find("a question")
            (0, None)
        """
        return self.kept.get(key)

    # --8<-- [end:PagePool]
    def forget_all(self) -> None:
        """Keep no page any longer."""
        for key in tuple(self.kept):
            self.give_back(self.kept.pop(key))

    def _forget_oldest(self) -> None:
        # A dict keeps the order in which entries came: the first page that only the pool has is the
        # oldest.
        for key, page in self.kept.items():
            if self.count[page] == 1:
                self.give_back(self.kept.pop(key))
                return
        raise MemoryError(f"all {len(self.count)} pages are in use")

    def _check_used(self, page: int) -> None:
        # A page given back twice would be handed out twice, and two texts would write over each
        # other.
        if not 0 <= page < len(self.count) or self.count[page] == 0:
            raise ValueError(f"page must be one that is in use, got {page}")
