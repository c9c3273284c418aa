"""The engine on paper: what must hold after every step, for requests drawn at random."""

import functools
import random
from collections import Counter
from itertools import pairwise

import pytest

from mhattn.costs import (
    Chunk,
    PagePool,
    Replica,
    Request,
    known_accelerator,
    known_link,
    known_model,
    serve,
    serve_apart,
)
from mhattn.costs.engine import Engine


def drawn(seed):
    """Requests and options; every size is small, so that pages and places run out."""
    draw = random.Random(seed)
    size = draw.choice([1, 3, 5])
    requests = []
    for _ in range(draw.randint(1, 12)):
        prompt = draw.randint(1, 23)
        prefix = draw.choice([None, "a", "b"])
        shared = draw.randint(0, prompt) if prefix else 0
        arrival = draw.choice([0, draw.randint(0, 300)])
        requests.append(Request(arrival, prompt, draw.randint(1, 17), prefix, shared))
    most = max(-(-(r.prompt + r.answer - 1) // size) for r in requests)
    options = {"pages": most + draw.randint(0, 9), "page_size": size, "batch": draw.randint(1, 7)}
    options["continuous"] = draw.random() < 0.7
    options["piece"] = options["batch"] + draw.randint(1, 9) if draw.random() < 0.5 else None
    return requests, options


def all_seeds(number):
    """One test of so many seeds; that of the first failure stands in its traceback."""

    def decorate(holds):
        @functools.wraps(holds)
        def run():
            for seed in range(number):
                holds(seed)

        del run.__wrapped__  # or pytest looks for a fixture called seed
        return run

    return decorate


def time(chunks):
    return 3 + sum(7 * chunk.new + chunk.past // 5 for chunk in chunks)


def watched(requests, options):
    """The engine, step by step; after each, what must hold of its pages."""
    pool = PagePool(options["pages"], options["page_size"])
    rest = {name: options[name] for name in ("batch", "piece", "continuous")}
    engine = Engine(requests, time, pool, **rest)
    while engine.step():
        refers = Counter(page for place in engine.running for page in place.table)
        refers.update(pool.kept.values())
        assert [refers[page] for page in range(options["pages"])] == pool.count
        assert pool.used == len(refers) <= options["pages"]
        written = set(pool.kept.values())
        for place in engine.running:
            assert len(place.table) * pool.size >= place.kept
            full = min(place.request.shared, place.kept) // pool.size
            own = place.table[full:]  # what lies behind a common beginning
            assert written.isdisjoint(own), "a page is used twice"
            written.update(own)
        assert len(engine.running) <= options["batch"]
    assert not engine.running
    assert not engine.waiting
    pool.forget_all()
    assert pool.used == 0
    assert pool.available == options["pages"]
    return engine.served()


@all_seeds(300)
def test_what_must_hold(seed):
    requests, options = drawn(seed)
    served = watched(requests, options)
    assert served == serve(requests, time, **options)
    for index, (request, times, spans) in enumerate(
        zip(requests, served.tokens, served.spans, strict=True)
    ):
        assert len(times) == request.answer
        assert all(a < b for a, b in pairwise(times))
        assert (spans[0].start, spans[-1].end) == (request.arrival, times[-1])
        assert all(a.end == b.start for a, b in pairwise(spans))
        assert sum(served.waits(index).values()) == times[-1] - request.arrival
    for step, after in pairwise(served.steps):
        assert step.end <= after.start
    for step in served.steps:
        assert step.end - step.start == time(step.chunks)
        assert step.used <= options["pages"]
        if options["piece"]:
            assert sum(chunk.new for chunk in step.chunks) <= options["piece"]
    order = sorted(range(len(requests)), key=lambda i: (requests[i].arrival, i))
    first = [served.tokens[i][0] for i in order]
    assert first == sorted(first), "somebody overtook"


@all_seeds(300)
def test_every_token_is_computed_once_unless_pages_were_lost_or_shared(seed):
    requests, options = drawn(seed)
    served = serve(requests, time, **options)
    computed = Counter()
    for chunk in (chunk for step in served.steps for chunk in step.chunks):
        computed[chunk.request] += chunk.new
    for index, request in enumerate(requests):
        needed = request.prompt + request.answer - 1
        if served.preempted == 0:
            found = needed - computed[index]
            assert 0 <= found <= request.shared
            assert found % options["page_size"] == 0
            assert found == 0 or any(
                other is not request and other.prefix == request.prefix for other in requests
            )


def test_some_lose_pages_and_some_share():
    """Else the two tests above would hold for nothing."""
    served = [serve(requests, time, **options) for requests, options in map(drawn, range(300))]
    assert sum(each.preempted > 0 for each in served) > 30
    past = [step.chunks for each in served for step in each.steps]
    begun = {
        (i, c.request) for i, chunks in enumerate(past) for c in chunks if c.past and c.new > 1
    }
    assert len(begun) > 100


@pytest.mark.parametrize("piece", [None, 5])
def test_one_alone_takes_what_the_closed_form_says(piece):
    prompt, answer = 13, 7
    served = serve([Request(11, prompt, answer)], time, pages=4, page_size=5, batch=1, piece=piece)
    pieces = [(13, 0)] if piece is None else [(5, 0), (5, 5), (3, 10)]
    seconds = sum(time([Chunk(new, past)]) for new, past in pieces)
    assert served.first == [seconds]
    assert served.between == [time([Chunk(1, prompt + i)]) for i in range(answer - 1)]
    assert served.waits(0) == {"prefill": seconds, "decode": sum(served.between)}


def test_who_waits_for_what():
    """By hand: a step takes as long as it has tokens."""
    requests = [Request(0, 4, 3), Request(1, 2, 2), Request(2, 3, 1)]
    served = serve(
        requests, lambda chunks: sum(c.new for c in chunks), pages=9, batch=2, page_size=3
    )
    # 0 to 4: prompt 0. 4 to 6: prompt 1, and 0 waits. 6 to 8: both; 1 has all. 8 to 11: prompt 2.
    assert served.tokens == ((4, 8, 12), (6, 8), (11,))
    assert served.waits(0) == {"prefill": 4, "prompt": 2 + 3, "decode": 2 + 1}
    assert served.waits(1) == {"step": 3, "prefill": 2, "decode": 2}
    assert served.waits(2) == {"step": 2, "batch": 4, "prefill": 3}
    still = serve(
        requests, lambda c: sum(x.new for x in c), pages=9, batch=2, page_size=3, continuous=False
    )
    # 0 to 6: request 0 alone. Then a batch of both others: prompts, and the last token of 1.
    assert still.tokens == ((4, 5, 6), (8, 12), (11,))
    assert still.waits(2) == {"step": 2, "batch": 2, "prompt": 2, "prefill": 3}


def test_a_prompt_in_pieces_stops_nobody():
    requests = [Request(0, 2, 9), Request(1, 20, 1)]
    whole = serve(requests, time, pages=99, batch=2)
    pieces = serve(requests, time, pages=99, batch=2, piece=4)
    assert max(whole.between) > 2 * max(pieces.between)
    assert whole.waits(0)["prompt"] > 0
    assert "prompt" not in pieces.waits(0)


@all_seeds(40)
def test_apart(seed):
    requests, options = drawn(seed)
    options.pop("piece")
    options.pop("continuous")
    if all(request.answer == 1 for request in requests):
        return
    prompts, answers = serve_apart(requests, time, time, lambda tokens: 11 * tokens, **options)
    later = [i for i, request in enumerate(requests) if request.answer > 1]
    for place, index in enumerate(later):
        request, times = requests[index], answers.tokens[place]
        assert len(times) == request.answer
        assert times[0] == prompts.tokens[index][0] + 11 * request.prompt
        assert all(a < b for a, b in pairwise(times))
    if answers.preempted == 0:
        assert all(chunk.new == 1 for step in answers.steps for chunk in step.chunks)
        assert all("prompt" not in answers.waits(i) for i in range(len(later)))


def test_below_the_roofline():
    """No run gives more tokens a second than full batches could, all of them as short as any."""
    replica = Replica(
        known_model("llama-3.1-8b"), known_accelerator("h100"), known_link("nvlink-4")
    )
    draw = random.Random(5)
    requests = [
        Request(draw.randint(0, 10**9), draw.randint(100, 900), draw.randint(20, 90))
        for _ in range(60)
    ]
    pages = replica.cache_tokens // 16
    served = serve(requests, replica.step_nanoseconds, pages=pages, batch=32)
    full = replica.step_nanoseconds([Chunk(1, 100)] * 32)
    assert 0.1 * 32e9 / full < served.tokens_a_second < 32e9 / full
    assert min(served.between) >= replica.step_nanoseconds([Chunk(1, 100)])


ONE = [Request(0, 7, 3)]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: serve([], time, pages=3), ValueError, "requests must have at least one, got none"),
        (
            lambda: serve(ONE, time, pages=2, page_size=4),
            ValueError,
            "pages must be at least 3, for request 0, got 2",
        ),
        (lambda: serve(ONE, time, pages=0), ValueError, "pages must be at least 1, got 0"),
        (lambda: serve(ONE, time, pages=3, batch=0), ValueError, "batch must be at least 1, got 0"),
        (
            lambda: serve(ONE, time, pages=3, batch=4, piece=4),
            ValueError,
            "piece must be at least 5, got 4",
        ),
        (
            lambda: serve(ONE, time, pages=3, batch=2.0),
            TypeError,
            "batch must be an integer, got float",
        ),
        (
            lambda: serve([Request(0, 7, 3, "a", 8)], time, pages=3),
            ValueError,
            "shared must be at most the prompt, 7, got 8",
        ),
        (
            lambda: serve([Request(-1, 7, 3)], time, pages=3),
            ValueError,
            "arrival must be at least 0, got -1",
        ),
        (
            lambda: serve([Request(0, 7, 0)], time, pages=3),
            ValueError,
            "answer must be at least 1, got 0",
        ),
        (
            lambda: serve_apart([Request(0, 7, 1)], time, time, int, pages=3),
            ValueError,
            "requests must have one with more than one token, got none",
        ),
        (lambda: PagePool(3, 4).share(0), ValueError, "page must be one that is in use, got 0"),
        (lambda: PagePool(3, 4).give_back(7), ValueError, "page must be one that is in use, got 7"),
        (lambda: PagePool(3, 4).write([], 4), ValueError, "token must be at most 0, got 4"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert str(raised.value) == message


def test_no_page_is_left():
    pool = PagePool(2, 3)
    pool.take()
    pool.take()
    with pytest.raises(MemoryError, match=r"^all 2 pages are in use$"):
        pool.take()


@all_seeds(100)
def test_pages_hold_what_was_written(seed):
    """Sequences that fork: each reads its own tokens, whatever the others write."""
    draw = random.Random(seed)
    size = draw.randint(1, 5)
    pool, memory = PagePool(97, size), {}
    tables, texts = [[]], [[]]
    for count in range(60):
        i = draw.randrange(len(tables))
        if draw.random() < 0.15 and len(tables) < 5:  # a fork has the same pages
            tables.append([pool.share(page) for page in tables[i]])
            texts.append(list(texts[i]))
            continue
        token = len(texts[i])
        moved = pool.write(tables[i], token)
        if moved:
            old, new = moved
            memory |= {(new, k): memory[old, k] for k in range(size) if (old, k) in memory}
        memory[tables[i][token // size], token % size] = count
        texts[i].append(count)
        for table, text in zip(tables, texts, strict=True):
            assert [memory[table[t // size], t % size] for t in range(len(text))] == text
    distinct = {page for table in tables for page in table}
    assert pool.used == len(distinct)
    for table in tables:
        for page in table:
            pool.give_back(page)
    assert pool.available == 97


def test_kept_pages_are_given_away_oldest_first():
    pool = PagePool(3, 4)
    for key in "ab":
        page = pool.take()
        pool.keep(key, page)
        pool.give_back(page)
    pool.share(pool.find("b"))
    assert pool.available == 2
    assert [pool.take(), pool.take()] == [2, 0]
    assert (pool.find("a"), pool.find("b")) == (None, 1)
    assert pool.available == 0
