"""A small engine that serves requests on paper: who waits for what, event by event.

It computes nothing: it hands out pages of a cache, chooses what each step computes, and asks a
function how long that takes. Nothing in it is random.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from mhattn.costs import integers as check
from mhattn.costs.pages import PagePool
from mhattn.costs.replica import Chunk

__all__ = ["Request", "Served", "Span", "Step", "serve", "serve_apart"]


@dataclass(frozen=True)
class Request:
    """What somebody asks for.

    Attributes:
        arrival: when, in nanoseconds.
        prompt: its tokens.
        answer: tokens to give. The first comes from the prompt, each other from a step of its own.
        prefix: what tells requests whose prompts begin the same. None: nobody's does.
        shared: how many tokens these have in common.
        ready: whether the prompt's cache and the first token come along, from another replica.
    """

    arrival: int
    prompt: int
    answer: int
    prefix: str | None = None
    shared: int = 0
    ready: bool = False


@dataclass(frozen=True)
class Span:
    """What happens to a request for a while.

    Attributes:
        start: in nanoseconds.
        end: in nanoseconds.
        what: it is computed, ``"prefill"`` or ``"decode"``; or it waits, for the end of a
            ``"step"``, for a place in the ``"batch"``, for free ``"pages"``, or, with a place, for
            the ``"prompt"`` of another one.
    """

    start: int
    end: int
    what: str


@dataclass(frozen=True)
class Step:
    """What the machines do at once.

    Attributes:
        start: in nanoseconds.
        end: in nanoseconds.
        chunks: what is computed, of which request.
        used: pages that somebody has.
    """

    start: int
    end: int
    chunks: tuple[Chunk, ...]
    used: int


@dataclass(frozen=True)
class Served:
    """What `serve` notes.

    Attributes:
        requests: those that were served, in the order in which they were given.
        steps: one after the other.
        tokens: for each request, when each token was given.
        spans: for each request, what happened from its arrival to its last token.
        preempted: how often a request lost its pages and was put back.
    """

    requests: tuple[Request, ...]
    steps: tuple[Step, ...]
    tokens: tuple[tuple[int, ...], ...]
    spans: tuple[tuple[Span, ...], ...]
    preempted: int

    @property
    def first(self) -> list[int]:
        """For each request, nanoseconds until its first token."""
        pairs = zip(self.tokens, self.requests, strict=True)
        return [times[0] - request.arrival for times, request in pairs]

    @property
    def between(self) -> list[int]:
        """Nanoseconds between one token and the next, of all requests."""
        return [b - a for times in self.tokens for a, b in pairwise(times)]

    @property
    def tokens_a_second(self) -> float:
        """Over the time from the first arrival to the last token."""
        given = sum(map(len, self.tokens))
        start = min(request.arrival for request in self.requests)
        return given * 1e9 / (max(times[-1] for times in self.tokens) - start)

    def waits(self, request: int) -> dict[str, int]:
        """How long a request spent on what.

        Args:
            request: which, in the order of `requests`.

        Returns:
            Nanoseconds for each ``what`` of its spans; together, until its last token.

        Examples:
            >>> serve([Request(0, 5, 3)], lambda chunks: 2, pages=1).waits(0)
            {'prefill': 2, 'decode': 4}
        """
        total: dict[str, int] = {}
        for span in self.spans[request]:
            total[span.what] = total.get(span.what, 0) + span.end - span.start
        return total


@dataclass
class Place:
    """A request that has a place in the batch."""

    index: int
    request: Request
    todo: int  # tokens to compute before it can give the next one; 1: it decodes
    kept: int = 0
    table: list[int] = field(default_factory=list)


def serve(
    requests: Sequence[Request],
    time: Callable[[Sequence[Chunk]], int],
    *,
    pages: int,
    page_size: int = 16,
    batch: int = 256,
    piece: int | None = None,
    continuous: bool = True,
) -> Served:
    """Serve requests, first come, first served.

    Before each step, requests that wait get a place in the order of their arrival, as long as the
    batch has one and their prompt's pages are free; nobody overtakes. Then the step: the oldest
    prompt, as a whole; or if there is none, a token of each that has a place. With ``piece``, a
    token of each, and pieces of prompts up to so many tokens in all. A sequence takes a page when
    it needs one. If none is free, the last that came loses its pages, and is put back to the head
    of the queue; its prompt and its answer so far are computed again.

    Args:
        requests: in any order.
        time: nanoseconds of a step, such as `Replica.step_nanoseconds`.
        pages: how many there are.
        page_size: tokens on each.
        batch: how many requests have a place at most.
        piece: tokens of a step at most, more than ``batch``. Default: whole prompts.
        continuous: whether a place that becomes free is given away before the whole batch is done.

    Returns:
        Every step, every token's time, and what each request waited for.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is too small; there is no request; one needs more pages than there are.

    Examples:
        A step takes as long as it has tokens. The second request waits for the first's prompt.

        >>> asked = [Request(arrival=0, prompt=5, answer=2), Request(arrival=1, prompt=3, answer=2)]
        >>> served = serve(asked, lambda chunks: sum(c.new for c in chunks), pages=2)
        >>> served.tokens
        ((5, 10), (8, 10))
        >>> served.waits(1)
        {'step': 4, 'prefill': 3, 'decode': 2}
    """
    check.positive(batch=batch)
    if piece is not None:
        check.at_least("piece", piece, batch + 1)
    engine = Engine(requests, time, PagePool(pages, page_size), batch, piece, continuous)
    for index, request in enumerate(requests):
        check_request(index, request, pages, page_size)
    if not requests:
        raise ValueError("requests must have at least one, got none")
    while engine.step():
        pass
    return engine.served()


class Engine:
    """The state between steps; `serve` says what each does."""

    def __init__(
        self,
        requests: Sequence[Request],
        time: Callable[[Sequence[Chunk]], int],
        pool: PagePool,
        batch: int,
        piece: int | None,
        continuous: bool,
    ) -> None:
        self.requests, self.time, self.pool = tuple(requests), time, pool
        self.batch, self.piece, self.continuous = batch, piece, continuous
        # Those that arrive at once are served in the order in which they were given.
        order = sorted(range(len(requests)), key=lambda i: (requests[i].arrival, i))
        self.waiting = deque(order)
        self.running: list[Place] = []
        # A request that is ready has its first token already, from the replica that computed its
        # prompt.
        self.given: list[list[int]] = [[r.arrival] * r.ready for r in requests]
        self.spans: list[list[Span]] = [[] for _ in requests]
        self.steps: list[Step] = []
        self.lost: set[int] = set()
        self.now = self.preempted = 0

    def step(self) -> bool:
        """Do the next step. False: there is none."""
        if not (self.waiting or self.running):
            return False
        if not self.running:
            # Nobody is here: the clock goes on to the next arrival.
            self.now = max(self.now, self.requests[self.waiting[0]].arrival)
        reason = self.admit()
        chunks = self.with_pages(self.plan())
        end = self.now + self.time(chunks)
        self.steps.append(Step(self.now, end, tuple(chunks), self.pool.used))
        self.note(chunks, end, reason)
        self.now = end
        for chunk in chunks:
            self.finish(chunk)
        return True

    # --8<-- [start:rules]
    def admit(self) -> str:
        """Give places to those who wait; why the next one gets none."""
        if self.running and not self.continuous:
            return "batch"
        while self.waiting and self.requests[self.waiting[0]].arrival <= self.now:
            if len(self.running) == self.batch:
                return "batch"
            index = self.waiting[0]
            request, given = self.requests[index], len(self.given[index])
            moved = request.ready and index not in self.lost  # from another replica
            tokens = request.prompt + given - (1 if moved else 0)
            found = [] if moved else self.prefix_pages(request, tokens)
            place = Place(index, request, tokens, table=list(found))
            for page in found:
                self.pool.share(page)
            if -(-tokens // self.pool.size) - len(found) > self.pool.available:
                self.leave(place)
                return "pages"
            self.waiting.popleft()
            for token in range(len(found) * self.pool.size, tokens, self.pool.size):
                self.pool.write(place.table, token)
            place.kept = tokens if moved else len(found) * self.pool.size
            place.todo = 1 if moved else tokens - place.kept
            self.running.append(place)
        return "step"

    def prefix_pages(self, request: Request, tokens: int) -> list[int]:
        """Pages of the prompt that others have computed; one token is left to compute."""
        found: list[int] = []
        most = min(request.shared, tokens - 1) // self.pool.size
        while request.prefix is not None and len(found) < most:
            page = self.pool.find((request.prefix, len(found)))
            if page is None:
                break
            found.append(page)
        return found

    def plan(self) -> list[Chunk]:
        """What the next step computes."""
        starting = [
            place for place in self.running if place.todo > 1 or not self.given[place.index]
        ]
        going = [place for place in self.running if place not in starting]
        if self.piece is None:
            chosen = starting[:1] or going
            return [Chunk(each.todo, each.kept, True, each.index) for each in chosen]
        chunks = [Chunk(1, place.kept, True, place.index) for place in going]
        room = self.piece - len(chunks)
        for place in starting:
            new = min(room, place.todo)
            room -= new
            if new:
                chunks.append(Chunk(new, place.kept, new == place.todo, place.index))
        return chunks

    def with_pages(self, chunks: list[Chunk]) -> list[Chunk]:
        """Take a page for each token that needs one; the last that came loses its pages."""
        for chunk in chunks:
            for place in [place for place in self.running if place.index == chunk.request]:
                while place in self.running and place.kept >= len(place.table) * self.pool.size:
                    if self.pool.available:
                        self.pool.write(place.table, place.kept)
                    else:
                        self.put_back(self.running[-1])
        left = {place.index for place in self.running}
        return [chunk for chunk in chunks if chunk.request in left]

    # --8<-- [end:rules]
    def put_back(self, place: Place) -> None:
        self.leave(place)
        self.running.remove(place)
        # To the head of the queue: it came before all who wait, and nobody overtakes.
        self.waiting.appendleft(place.index)
        # Even of a request that came with its cache from another replica, all is computed again.
        self.lost.add(place.index)
        self.preempted += 1

    def leave(self, place: Place) -> None:
        """Give back all pages."""
        for page in place.table:
            self.pool.give_back(page)
        place.table = []

    def finish(self, chunk: Chunk) -> None:
        """After a step: the tokens are in the cache, and perhaps the next one is known."""
        place = next(place for place in self.running if place.index == chunk.request)
        request = place.request
        place.kept += chunk.new
        place.todo = max(1, place.todo - chunk.new)
        if request.prefix is not None:
            # Full pages only: into one that is not full, this request itself will still write.
            full = min(request.shared, place.kept) // self.pool.size
            for i in range(full):
                self.pool.keep((request.prefix, i), place.table[i])
        if chunk.gives:
            self.given[place.index].append(self.now)
        if len(self.given[place.index]) == request.answer:
            self.leave(place)
            self.running.remove(place)

    def note(self, chunks: Sequence[Chunk], end: int, reason: str) -> None:
        """What the step was for each request that has arrived."""
        computed = {chunk.request for chunk in chunks}
        for place in self.running:
            what = "decode" if place.todo == 1 and self.given[place.index] else "prefill"
            self.add(place.index, end, what if place.index in computed else "prompt")
        for index in self.waiting:
            arrived = self.requests[index].arrival
            if arrived < end:
                blocked = "pages" if reason == "step" else reason  # or it was put back just now
                self.add(index, end, blocked if arrived <= self.now else "step")

    def add(self, index: int, end: int, what: str) -> None:
        spans = self.spans[index]
        if spans and spans[-1].what == what and spans[-1].end == self.now:
            spans[-1] = Span(spans[-1].start, end, what)
        else:
            spans.append(Span(max(self.now, self.requests[index].arrival), end, what))

    def served(self) -> Served:
        times = tuple(map(tuple, self.given))
        spans = tuple(map(tuple, self.spans))
        return Served(self.requests, tuple(self.steps), times, spans, self.preempted)


def check_request(index: int, request: Request, pages: int, page_size: int) -> None:
    check.at_least("arrival", request.arrival, 0)
    check.at_least("answer", request.answer, 2 if request.ready else 1)
    check.positive(prompt=request.prompt)
    check.at_least("shared", request.shared, 0)
    if request.shared > request.prompt:
        raise ValueError(
            f"shared must be at most the prompt, {request.prompt}, got {request.shared}"
        )
    needed = -(-(request.prompt + request.answer - 1) // page_size)
    if needed > pages:
        raise ValueError(f"pages must be at least {needed}, for request {index}, got {pages}")


def serve_apart(
    requests: Sequence[Request],
    prefill: Callable[[Sequence[Chunk]], int],
    decode: Callable[[Sequence[Chunk]], int],
    send: Callable[[int], int],
    *,
    pages: int,
    page_size: int = 16,
    batch: int = 256,
) -> tuple[Served, Served]:
    """Serve requests on two replicas: one computes prompts, the other all later tokens.

    Args:
        requests: as for `serve`.
        prefill: nanoseconds of a step of the first.
        decode: nanoseconds of a step of the second.
        send: nanoseconds until the cache of so many tokens has arrived there.
        pages: how many each has.
        page_size: tokens on each page.
        batch: how many requests have a place at most, on each.

    Returns:
        What each of them did. The second has only requests with more than one token; each arrives
        there with its cache, and the first token's time is that arrival.

    Raises:
        TypeError: as `serve`.
        ValueError: as `serve`.

    Examples:
        >>> asked = [Request(0, 5, 3), Request(1, 3, 1)]
        >>> prompts, answers = serve_apart(
        ...     asked, lambda chunks: 10, lambda chunks: 1, lambda tokens: tokens, pages=2)
        >>> prompts.tokens, answers.tokens
        (((10,), (20,)), ((15, 16, 17),))
    """
    asked = [replace(request, answer=1) for request in requests]
    first = serve(asked, prefill, pages=pages, page_size=page_size, batch=batch)
    later = [
        replace(request, arrival=times[0] + send(request.prompt), prefix=None, shared=0, ready=True)
        for request, times in zip(requests, first.tokens, strict=True)
        if request.answer > 1
    ]
    if not later:
        raise ValueError("requests must have one with more than one token, got none")
    return first, serve(later, decode, pages=pages, page_size=page_size, batch=batch)
