"""The calculator takes what people type, and gives its page's answers.

That it counts as Python does, for all sizes, is tested in test_calculator_costs.py.
"""

import re
from dataclasses import replace
from urllib.parse import parse_qs

import pytest
from mhsite.pages import calculator
from mhsite.stories.source import DOCS

from mhattn.costs import known_accelerator, known_accelerators, known_model, known_models

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
DESKTOP = {"viewport": {"width": 1300, "height": 900}}
each_screen = pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
each_language = pytest.mark.parametrize("language", ["", "zh/"], ids=["en", "zh"])


def answer(page, name):
    """What stands large in an answer, and the words beside it."""
    parts = (page.locator(f"[data-answer={part}]") for part in (name, f"{name}-more"))
    return tuple(part.inner_text() for part in parts)


def type_in(page, name, text):
    """As a person does: touch the field, take out what is there, type."""
    field = page.locator(f'.mh-calculator [name="{name}"]')
    field.click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.type(text)


def unfold(page, title):
    page.locator(".mh-calculator summary", has_text=title).click()


def exact(page):
    """The exact numbers of all rows, by name."""
    rows = page.locator(".mh-calculator tr[data-name]")
    rows.first.wait_for()
    page.wait_for_timeout(150)
    texts = rows.evaluate_all(
        "all => all.map(row => [row.dataset.name, row.querySelector('small').textContent])"
    )
    return {name: int(text.replace(",", "")) for name, text in texts}


def test_every_known_model_is_a_preset(open_page):
    page = open_page("calculator/")
    options = page.locator("[name=model] option").evaluate_all("all => all.map(x => x.value)")
    assert options == list(known_models())
    groups = page.locator("[name=device] optgroup").evaluate_all(
        "all => all.map(x => [x.label, ...[...x.children].map(option => option.value)])"
    )
    chips = [known_accelerator(name) for name in known_accelerators()]
    makers = dict.fromkeys(chip.maker for chip in chips)
    assert groups == [[m, *(chip.name for chip in chips if chip.maker == m)] for m in makers]


@each_language
@each_screen
def test_a_card_that_the_list_lacks(open_page, screen, language):
    """The button leads to its three numbers, and the answers are then of no other device."""
    page = open_page(f"{language}calculator/", **screen)
    field = page.locator(".mh-calculator [name=memory]")
    assert not field.is_visible()
    page.get_by_role("button", name="我的卡" if language else "my card").click()
    assert field.evaluate("field => field === document.activeElement")
    for key in ("24", "Tab", "1008", "Tab", "165.2"):
        page.keyboard.press(key) if key == "Tab" else page.keyboard.type(key)
    mine = replace(
        known_accelerator("h100"), memory=24 * 10**9, bandwidth=1008 * 10**9, flops=1652 * 10**11
    )
    cost = known_model(calculator.MODEL).serving(8192, mine)
    left = calculator.scaled(
        mine.memory - cost.weight_bytes - cost.cache_bytes, 1024, calculator.BYTES
    )
    verdict = answer(page, "memory")[1]
    assert ("你的设备" if language else "your device") in verdict
    assert left in verdict
    assert answer(page, "rate")[0] == calculator.significant(10**9 / cost.step_nanoseconds)


# --- what stands in the page ---


@each_language
def test_answers_stand_in_the_page_before_the_script(open_page, language):
    """The script changes none of them, and nothing moves."""
    still = open_page(f"{language}calculator/", java_script_enabled=False)
    assert still.locator(".mh-calculator select:enabled, .mh-calculator input:enabled").count() == 0
    assert "JavaScript" in still.locator(".mh-calculator > noscript").inner_text()
    alive = open_page(f"{language}calculator/")
    alive.locator(".mh-calculator summary").first.wait_for()
    for name in ("cache", "memory", "prompt", "rate"):
        assert answer(still, name) == answer(alive, name) != ("", "")
    tops = [page.locator(".mh-answers").bounding_box()["y"] for page in (still, alive)]
    assert tops[0] == tops[1]
    cost = known_model(calculator.MODEL).serving(8192, known_accelerator("h100"))
    assert answer(alive, "cache")[0] == f"{cost.cache_bytes / 2**30:.2f} GiB"


@each_language
def test_inputs_and_answers_fit_on_a_phone(open_page, language):
    page = open_page(f"{language}calculator/", **PHONE)
    page.locator(".mh-calculator summary").first.wait_for()
    for model, batch in ((calculator.MODEL, "1"), ("deepseek-v3", "64")):
        page.select_option("[name=model]", model)
        type_in(page, "batch", batch)
        page.wait_for_timeout(100)
        inputs = page.locator(".mh-calculator > .mh-fields").bounding_box()
        answers = page.locator(".mh-answers").bounding_box()
        header = page.locator(".md-header").bounding_box()["height"]
        assert answers["y"] + answers["height"] - inputs["y"] < 740 - header - 20
        assert page.evaluate("document.documentElement.scrollWidth") == 360


@each_screen
def test_targets_are_large_enough(open_page, screen):
    page = open_page("calculator/", **screen)
    page.locator(".mh-calculator summary").first.wait_for()
    for title in ("Sizes of the model", "Device of your own"):
        unfold(page, title)
    small = page.locator(".mh-calculator :is(input, select, button, summary)").evaluate_all(
        "all => all.map(x => [x.name || x.textContent, x.getBoundingClientRect()])"
        ".filter(([, box]) => box.height && Math.min(box.height, box.width) < 24)"
    )
    assert small == []


# --- as people type ---


@each_screen
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("131,072", 131_072), ("128k", 131_072), ("128 K", 131_072), ("1e6", 1_000_000),
        ("1_000", 1000), ("１２８", 128), ("１３１，０７２", 131_072), ("128 000", 128_000),
        ("1M", 2**20), (" 8192 ", 8192), ("1.5k", 1536), ("4096 tokens", 4096), ("2万", 20_000),
    ],
)  # fmt: skip
def test_lengths_as_people_type_them(open_page, screen, text, tokens):
    page = open_page("calculator/", **screen)
    page.locator(".mh-calculator summary").first.wait_for()
    type_in(page, "tokens", text)
    cost = known_model(calculator.MODEL).serving(tokens, known_accelerator("h100"))
    assert answer(page, "cache")[0] == calculator.scaled(cost.cache_bytes, 1024, calculator.BYTES)
    assert page.locator(".mh-calc-error").is_hidden()


def paste(page, name, text):
    page.locator(f'.mh-calculator [name="{name}"]').click()
    page.keyboard.press("Control+a")
    page.evaluate("text => navigator.clipboard.writeText(text)", text)
    page.keyboard.press("Control+v")


def test_pasted_texts(open_page):
    page = open_page("calculator/", permissions=["clipboard-read", "clipboard-write"])
    paste(page, "tokens", "  131,072 tokens\n")
    assert answer(page, "cache")[0] == "16.0 GiB"
    paste(page, "tokens", "8192\n4096")  # two numbers are not one
    assert page.input_value("[name=tokens]") == "8192 4096"
    assert page.locator(".mh-calc-error").inner_text() == (
        "tokens L: “8192 4096” is not a whole number."
    )
    assert answer(page, "cache")[0] == "16.0 GiB"


@pytest.mark.parametrize(
    ("language", "name", "text", "said"),
    [
        ("", "tokens", "1.5", "tokens L: “1.5” is not a whole number."),
        ("", "tokens", "1,5", "tokens L: “1,5” is not a whole number."),
        ("", "batch", "0", "sequences (batch): at least 1, not 0."),
        ("", "num_kv_heads.0", "5", "KV heads H_kv must divide query heads H, 32; 5 does not."),
        ("", "mlp.per_token", "3", "experts a token: at most 0, not 3."),
        ("", "memory", "much", "memory, GB: “much” is not a number."),
        ("zh/", "tokens", "abc", "词元数 L：“abc”不是整数。"),
        ("zh/", "num_kv_heads.0", "5", "KV 头数 H_kv必须整除查询头数 H 32，5 不能整除。"),
    ],
)
def test_what_is_no_size_is_said_in_the_readers_words(open_page, language, name, text, said):
    page = open_page(f"{language}calculator/")
    page.locator(".mh-calculator summary").first.wait_for()
    for fold in page.locator(".mh-calculator summary").all()[:2]:
        fold.click()
    before = answer(page, "memory")
    page.locator(f'.mh-calculator [name="{name}"]').select_text()
    page.keyboard.insert_text(text)
    error = page.locator(".mh-calc-error")
    assert error.inner_text() == said
    assert not re.search(r"undefined|NoneType|float|num_|NaN", error.inner_text())
    field = page.locator(f'.mh-calculator [name="{name}"]')
    assert field.get_attribute("aria-invalid") == "true"
    assert field.get_attribute("aria-describedby") == error.get_attribute("id")
    assert answer(page, "memory") == before
    page.wait_for_timeout(800)
    assert page.locator(".mh-calc-said").inner_text() == said
    page.get_by_role("button", name="还原" if language else "reset").click()
    assert error.is_hidden()
    assert page.locator("[aria-invalid]").count() == 0


@each_screen
def test_an_empty_field_keeps_the_last_result(open_page, screen):
    page = open_page("calculator/", **screen)
    page.locator(".mh-calculator summary").first.wait_for()
    type_in(page, "tokens", "64k")
    before = [answer(page, name) for name in ("cache", "memory", "prompt", "rate")]
    type_in(page, "tokens", "")
    assert [answer(page, name) for name in ("cache", "memory", "prompt", "rate")] == before
    assert page.locator(".mh-calc-error").is_hidden()
    page.keyboard.type("8k")
    assert answer(page, "cache")[0] == "1.00 GiB"


def test_one_sentence_is_said_once_the_reader_stops(open_page):
    page = open_page("calculator/")
    said = page.locator(".mh-calc-said")
    page.wait_for_timeout(900)
    page.evaluate("""() => {
      window.said = []
      const place = document.querySelector('.mh-calc-said')
      const note = () => window.said.push(place.textContent)
      new MutationObserver(note).observe(place, { childList: true })
    }""")
    type_in(page, "tokens", "16384")
    page.wait_for_timeout(900)
    assert page.evaluate("window.said") == [said.inner_text()]
    assert said.inner_text().startswith("KV cache 2.00 GiB; fits on one H100: ")
    assert page.locator(".mh-calculator [aria-live]").count() == 0


# --- what cannot be counted ---


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("falcon-7b", "do not give output: only the cache is counted"),
        ("bert-base", "An encoder: it keeps no cache"),
        ("t5-small", "An encoder-decoder: this form does not count it"),
        ("qwen3-next-80b-a3b", "Of linear attention, only reading and writing its state"),
        ("mixtral-8x7b", "Of the experts, a batch reads those"),
        ("gemma-4-e2b", "Published are 5.10 G parameters, counted here "),
    ],
)
def test_what_is_not_counted_is_said(open_page, name, note):
    page = open_page("calculator/")
    page.select_option("[name=model]", name)
    assert note in page.locator(".mh-calc-notes").inner_text()
    assert "–" in [answer(page, of)[0] for of in ("cache", "rate")] or name not in (
        "bert-base", "t5-small",
    )  # fmt: skip


def test_a_model_that_does_not_fit(open_page):
    page = open_page("calculator/")
    page.select_option("[name=model]", "llama-3.1-70b")
    assert answer(page, "memory")[1].startswith("needs 2 × H100 (1, 2, 4, 8 … are tried): ")
    page.select_option("[name=devices]", "1")
    assert answer(page, "memory")[1] == "does not fit on 1 × H100: needs 2"
    assert answer(page, "rate") == ("–", "")
    page.select_option("[name=weight_bits]", "4")
    assert answer(page, "memory")[1].startswith("fits on one H100: ")
    page.select_option("[name=device]", "trainium3")
    assert answer(page, "memory")[1].startswith("fits on one Trainium3: ")
    unfold(page, "Device of your own")
    type_in(page, "memory", "24")
    assert answer(page, "memory")[1] == "does not fit on 1 × your device: needs 2"


def test_windows_count_in_every_row(open_page):
    page = open_page("calculator/?model=mistral-7b-v0.1&tokens=128k")
    unfold(page, "All counts")
    cost = known_model("mistral-7b-v0.1").serving(131_072, known_accelerator("h100"))
    rows = exact(page)
    assert rows["score_flops"] == cost.score_flops
    assert rows["prompt_flops"] == cost.prompt_flops
    assert cost.score_flops < 0.2 * cost.prompt_flops
    texts = page.locator(".mh-calculator svg text").all_text_contents()
    assert {"scores, mixing", "all the rest", "KV cache", "with weights", "memory"} <= set(texts)


# --- the page's tasks ---


def printed(section):
    """What the story prints in a section."""
    story = (DOCS / "stories" / "calculator.pycon").read_text(encoding="utf-8")
    text = story.split(f"[start:{section}]")[1].split(f"# --8<-- [end:{section}]")[0]
    return [line for line in text.splitlines()[1:] if line and line[:4] not in (">>> ", "... ")]


def cells(section):
    rows = [line.strip("|").split("|") for line in printed(section)]
    return [[cell.strip() for cell in row] for row in rows]


@each_screen
@each_language
def test_first_task(open_page, screen, language):
    """Other KV heads, then a longer sequence: the cells of the page's table."""
    page = open_page(f"{language}calculator/", **screen)
    page.locator(".mh-calculator summary").first.wait_for()
    first = printed("llama")
    assert answer(page, "cache")[0] == first[0].removesuffix(" of KV cache")
    assert answer(page, "memory")[0] == first[1].removesuffix(" with the weights")
    assert first[2].removesuffix(" left") in answer(page, "memory")[1]
    assert answer(page, "prompt")[0] == first[3].removesuffix(" for the prompt")
    assert answer(page, "rate")[0] == first[4].removesuffix(" tokens a second")
    page.locator(".mh-calculator summary").first.click()
    for length, rows in (("8k", cells("cache")[2:5]), ("64k", cells("cache")[5:8])):
        type_in(page, "tokens", length)
        for column, heads in ((2, "8"), (1, "32"), (3, "1")):
            type_in(page, "num_kv_heads.0", heads)
            number, unit = answer(page, "cache")[0].split()
            cache = float(number) / (1024 if unit == "MiB" else 1)
            assert f"{cache:.3g} GiB" == rows[0][column]
            assert float(answer(page, "rate")[0]) == pytest.approx(float(rows[1][column]), abs=0.5)


def test_second_task(open_page):
    """The length at which scores and mixing are half of the prompt's FLOPs."""
    page = open_page("calculator/")
    unfold(page, "All counts")
    even, *shares = printed("outweigh")
    share = page.locator("[data-name=score_flops] td")
    type_in(page, "tokens", even)
    page.wait_for_timeout(200)
    assert re.search(r"\((\d+\.\d) %\)", share.inner_text())[1] == "50.0"
    for line in shares:
        name, *texts = line.split()
        page.select_option("[name=model]", name)
        for length, text in zip(("8k", "128k"), texts, strict=True):
            type_in(page, "tokens", length)
            page.wait_for_timeout(200)
            found = float(re.search(r"\((\d+\.\d) %\)", share.inner_text())[1])
            assert f"{found:.0f}%" == text


@each_language
def test_third_task(open_page, language):
    page = open_page(f"{language}calculator/")
    latents, own, _ = printed("deepseek")
    page.select_option("[name=model]", "deepseek-v3")
    type_in(page, "tokens", "128k")
    assert answer(page, "cache")[0] == latents.removesuffix(" of latents")
    page.locator(".mh-calculator summary").first.click()
    type_in(page, "kv_lora_rank.0", "")
    assert answer(page, "cache")[0] == own.removesuffix(" of keys and values")


# --- address, link, Python ---


def asked(page):
    """What stands behind the address's question mark; `page.url` may be late."""
    return page.evaluate("location.search").removeprefix("?")


def test_the_address_keeps_what_was_set(open_page):
    page = open_page("calculator/")
    assert asked(page) == ""
    page.select_option("[name=model]", "llama-3.1-70b")
    page.select_option("[name=device]", "tpu-7x")
    type_in(page, "tokens", "777")
    unfold(page, "Sizes of the model")
    type_in(page, "num_kv_heads.0", "16")
    found = parse_qs(asked(page))
    assert found == {
        "model": ["llama-3.1-70b"], "device": ["tpu-7x"], "tokens": ["777"],
        "num_kv_heads.0": ["16"],
    }  # fmt: skip
    before = [answer(page, name) for name in ("cache", "memory", "prompt", "rate")]
    page.reload()
    page.locator(".mh-calculator summary").first.wait_for()
    assert [answer(page, name) for name in ("cache", "memory", "prompt", "rate")] == before
    page.get_by_role("button", name="reset").click()
    assert asked(page) == ""
    assert page.input_value("[name=tokens]") == "8192"


def test_the_setting_survives_the_change_of_language(open_page):
    page = open_page("calculator/")
    page.select_option("[name=model]", "deepseek-v3")
    type_in(page, "tokens", "128k")
    before = answer(page, "cache")[0]
    page.locator("a.mh-language").click()
    page.wait_for_url("**/zh/calculator/?*")
    page.locator(".mh-calculator summary").first.wait_for()
    assert page.input_value("[name=tokens]") == "128k"
    assert answer(page, "cache")[0] == before
    page.locator("a.mh-language").click()
    page.wait_for_url("**/mhattn/calculator/?*")
    page.locator(".mh-calculator summary").first.wait_for()
    assert answer(page, "cache")[0] == before


def test_unknown_states_are_left_out(open_page):
    page = open_page("calculator/?model=no&device=no&weight_bits=3&tokens=<b>&x=1")
    page.locator(".mh-calculator summary").first.wait_for()
    assert page.input_value("[name=model]") == calculator.MODEL
    assert page.input_value("[name=weight_bits]") == "16"
    assert page.locator(".mh-calc-error").inner_text() == "tokens L: “<b>” is not a whole number."


def test_buttons_copy_the_link_and_lines_that_run(open_page, capsys):
    page = open_page("calculator/", permissions=["clipboard-read", "clipboard-write"])
    cases = [("deepseek-v3", "3", "24"), ("gemma-4-31b", "8", ""), ("gpt-2-124m", "1", "")]
    for model, batch, memory in cases:
        page.select_option("[name=model]", model)
        type_in(page, "batch", batch)
        if memory:
            unfold(page, "Device of your own")
            type_in(page, "memory", memory)
        page.get_by_role("button", name="copy link").click()
        assert page.evaluate("navigator.clipboard.readText()") == page.evaluate("location.href")
        page.get_by_role("button", name="copy Python").click()
        lines = page.evaluate("navigator.clipboard.readText()")
        exec(lines, {})
        cost = capsys.readouterr().out
        assert cost.startswith("ServingCost(")
        number = int(re.search(r"cache_bytes=(\d+)", cost)[1])
        short = calculator.scaled(number, 1024, calculator.BYTES)
        assert answer(page, "cache")[0] == short
        number = int(re.search(r"prompt_nanoseconds=(\d+)", cost)[1])
        if answer(page, "prompt")[0] != "–":
            short = calculator.scaled(number, 1000, calculator.TIMES)
            assert answer(page, "prompt")[0] == short
