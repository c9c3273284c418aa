"""The calculator counts as Python does, says what Python says, and its address keeps its state."""

import random
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from mhsite import javascript
from mhsite.source import SourceError

from mhattn.costs import kept_bytes, known_model, known_models, model_cost

FIELDS = ["layers", "embed_dim", "num_heads", "num_kv_heads", "head_dim", "tokens"]


def draw(random):
    """Sizes that may be impossible, and what Python answers: counts or an error's text."""
    sizes = {name: random.randint(1, 300) for name in FIELDS}
    sizes["num_kv_heads"] = random.choice([1, 2, 4, 8])
    sizes["num_heads"] = sizes["num_kv_heads"] * random.choice([1, 3, 16])
    sizes["layers"] = 12 * random.randint(1, 10)
    optional = {
        "tokens": 10 ** random.randint(0, 9), "batch": random.randint(1, 64),
        "mlp_dim": random.randint(0, 30_000), "mlp_matrices": random.choice([2, 3]),
        "window": random.randint(1, 200), "global_layers": 6 * random.randint(0, 2),
        "layers_per_cache": random.choice([1, 2, 3]), "q_lora_rank": random.randint(1, 1600),
        "kv_lora_rank": random.randint(1, 600), "qk_rope_head_dim": random.randint(0, 64),
        "v_head_dim": random.randint(1, 256), "bytes_per_number": random.choice([1, 2, 4]),
        "gigabytes_per_second": random.randint(1, 9000),
    }  # fmt: skip
    sizes |= {name: size for name, size in optional.items() if random.random() < 0.5}
    if random.random() < 0.25:
        name = random.choice(sorted(sizes))
        sizes[name] = random.choice([0, -1, sizes[name] + 1, 2.5])
    try:
        return sizes, {name: str(count) for name, count in vars(model_cost(**sizes)).items()}
    except (TypeError, ValueError) as error:
        return sizes, str(error)


def test_counts_and_errors_are_pythons(open_page, home):
    """A thousand settings, some of them impossible."""
    generator = random.Random(7)
    drawn = [draw(generator) for _ in range(1000)]
    refused = [answer for _, answer in drawn if isinstance(answer, str)]
    assert 100 < len(refused) < 600
    assert len({text.split(",")[0][:30] for text in refused}) > 15  # of many kinds
    page = open_page("calculator/")
    answers = page.evaluate(
        """async ([home, all]) => {
          const { model_cost } = await import(home + "assets/costs.js")
          const { read } = await import(home + "assets/calculator.js")
          return all.map(texts => {
            try {
              const cost = model_cost(read(texts))
              return Object.fromEntries(Object.entries(cost).map(([name, x]) => [name, String(x)]))
            } catch (error) { return error.message }
          })
        }""",
        [home, [{name: str(size) for name, size in sizes.items()} for sizes, _ in drawn]],
    )
    for (sizes, expected), answer in zip(drawn, answers, strict=True):
        assert answer == expected, sizes


def shown(page):
    """The exact numbers in the table, by name."""
    rows = page.locator("[data-widget=calculator] tr[data-name]").all()
    exact = {row.get_attribute("data-name"): row.locator("small").first for row in rows}
    texts = {
        name: cell.inner_text() or cell.locator("..").inner_text() for name, cell in exact.items()
    }
    return {name: text.split("\n")[0].replace(",", "") for name, text in texts.items()}


@pytest.mark.parametrize("language", ["", "zh/"])
def test_known_models_count_as_in_python(open_page, language):
    page = open_page(f"{language}calculator/")
    for name in ("gpt-2-124m", "llama-3.1-8b", "mistral-7b-v0.1", "deepseek-v3"):
        page.select_option("[name=model]", name)
        page.fill("[name=tokens]", "5000")
        model = known_model(name)
        cost = vars(model.cost(5000, mlp_dim=4 * model.embed_dim))
        if not model.latent:
            sizes = model.embed_dim, model.num_heads, model.num_kv_heads, model.head_dim
            run = {"tokens": 5000, "layers": model.layers}
            cost["kept_bytes"] = kept_bytes(*sizes, **run)
            cost["kept_with_weights_bytes"] = kept_bytes(*sizes, **run, with_weights=True)
        assert shown(page) == {field: str(number) for field, number in cost.items()}, name


def test_every_countable_decoder_can_be_chosen(open_page):
    page = open_page("calculator/")
    options = page.locator("[name=model] option").evaluate_all("all => all.map(x => x.value)")
    models = [known_model(name) for name in known_models()]
    countable = [model.name for model in models if model.kind == "decoder" and model.countable]
    assert options[1:] == countable
    assert "gpt-oss-120b" in countable
    assert "gemma-4-31b" not in countable
    for option in options:
        page.select_option("[name=model]", option)
        assert page.locator("[data-widget=calculator] [role=alert]").count() == 0


def test_impossible_sizes_show_pythons_text(open_page):
    page = open_page("zh/calculator/")
    page.fill("[name=num_kv_heads]", "5")
    alert = page.locator("[data-widget=calculator] [role=alert]")
    assert alert.inner_text().endswith("num_kv_heads must divide num_heads, 32, got 5")
    page.fill("[name=num_kv_heads]", "4")
    assert alert.count() == 0


def asked(page):
    """What stands behind the address's question mark; `page.url` may be late."""
    return page.evaluate("location.search").removeprefix("?")


def test_the_address_keeps_what_was_set(open_page):
    page = open_page("calculator/")
    assert asked(page) == ""
    page.select_option("[name=model]", "llama-3.1-8b")
    page.fill("[name=tokens]", "777")
    page.fill("[name=num_kv_heads]", "16")
    found = parse_qs(asked(page))
    assert found == {"model": ["llama-3.1-8b"], "tokens": ["777"], "num_kv_heads": ["16"]}
    before = shown(page)
    page.reload()
    page.wait_for_selector("tr[data-name]")
    assert shown(page) == before
    page.get_by_role("button", name="reset").click()
    assert asked(page) == ""
    assert page.input_value("[name=tokens]") == "8192"


def test_the_python_line_counts_the_same(open_page):
    page = open_page("calculator/?model=deepseek-v3&batch=3")
    line = page.locator("[data-widget=calculator] code").last.inner_text()
    cost = eval(line, {"model_cost": model_cost})
    assert shown(page)["decode_flops"] == str(cost.decode_flops)


def test_charts_name_their_lines(open_page):
    page = open_page("calculator/")
    texts = page.locator("[data-widget=calculator] svg text").all_text_contents()
    assert {"projections", "scores, mixing", "MLPs", "KV cache", "weights"} <= set(texts)
    page.fill("[name=mlp_dim]", "0")
    texts = page.locator("[data-widget=calculator] svg text").all_text_contents()
    assert "MLPs" not in texts


@pytest.mark.parametrize(
    "line", ["for x in y: pass", "return [x]", "return x / y", "return f'{x:.2f}'", "print(x)[0]"]
)
def test_what_is_not_understood_stops_the_build(tmp_path, line):
    file = Path(tmp_path, "code.py")
    file.write_text(f"def f(x, y):\n    z = x\n    {line}\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"code\.py:3: cannot be translated to JavaScript: "):
        javascript.translated({file: ["f"]})
    with pytest.raises(SourceError, match=r"code\.py: there is no function g"):
        javascript.translated({file: ["g"]})


def test_whole_numbers_divide_as_in_python(open_page, tmp_path):
    file = Path(tmp_path, "code.py")
    file.write_text("def f(x, y):\n    return x // y - x % y\n", encoding="utf-8")
    page = open_page("")
    code = javascript.translated({file: ["f"]}).replace("export ", "")
    pairs = [(x, y) for x in (-7, -6, 0, 5, 6) for y in (-3, -1, 2, 3)]
    found = page.evaluate(
        f"pairs => {{ {code}; return pairs.map(([x, y]) => Number(f(BigInt(x), BigInt(y)))) }}",
        pairs,
    )
    assert found == [x // y - x % y for x, y in pairs]
