"""The calculator's script counts what mhattn.costs counts: every number, without a browser.

Each case is a form as a reader may fill it in: the texts of its fields, by their names.
"""

import json
import random
import subprocess
from functools import cache

import pytest
from mhsite.engines import build
from mhsite.pages import calculator
from mhsite.pages.formulas import NODE

from mhattn.costs import (
    MlpSizes,
    kind_cost,
    known_accelerator,
    known_accelerators,
    known_model,
    known_models,
    serving_cost,
)

LENGTHS = (1, 2, 1000, 8192, 131_072, 1_000_003, 10**7)
BATCHES = (1, 3, 64, 4099)
DEVICES = ("", "1", "2", "8", "64")
COUNTED = [name for name in known_models() if known_model(name).kind != "encoder-decoder"]
# Edges, primes, and what no size can be.
SIZES = ("0", "1", "2", "7", "97", "1009", "8192", "104729", "1e6", "15485863", "1" + "0" * 23)
IMPOSSIBLE = ("", "-1", "1.5", "1e24", "x")
NO_MLP = {"dim": None, "matrices": None, "experts": 0, "per_token": 0, "shared": 0}
NO_MLP |= {"expert_dim": 0, "dense_layers": 0, "expert_layers": None, "expert_embed": None}

ANSWER = """
import { readFileSync } from "node:fs"
globalThis.document = { querySelectorAll: () => [], addEventListener: () => {} }
const { count, fieldsOf, fieldsOfDevice, read, scaled, significant } =
  await import("./calculator.js")
const { DEVICES, MODELS } = await import("./known-sizes.js")
const own = texts => ({
  ...fieldsOf(MODELS.find(model => model.name === texts.model)),
  ...fieldsOfDevice(DEVICES.find(device => device.name === texts.device)),
})
const written = cost => Object.fromEntries(Object.entries(cost).map(([name, x]) =>
  [name, x === null ? "None" : String(x)]))
const answers = {
  fields: own,
  count: texts => {
    try {
      return written(count(read({ ...own(texts), ...texts })))
    } catch (error) {
      if (error.parts === undefined) throw error
      return `refused: ${error.name}`
    }
  },
  text: ([number, base, units]) =>
    [scaled(BigInt(number), base, units), significant(Number(number))],
}
const [wanted, cases] = JSON.parse(readFileSync(0, "utf8"))
console.log(JSON.stringify(cases.map(answers[wanted])))
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Answers of the page's script to many cases at once."""
    folder = tmp_path_factory.mktemp("calculator")
    assets = build.assets("en")
    for name in ("calculator.js", "costs.js", "dom.js"):
        (folder / name).write_text(assets[f"assets/{name}"], encoding="utf-8")
    (folder / "known-sizes.js").write_text(calculator.known_sizes(), encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    (folder / "answer.js").write_text(ANSWER, encoding="utf-8")

    def answers(wanted, cases):
        asked = json.dumps([wanted, cases])
        command = [str(NODE), "answer.js"]
        done = subprocess.run(
            command, cwd=folder, input=asked, capture_output=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return answers


def whole(text):
    """The size that a text stands for; none is None."""
    return None if text == "" else int(float(text)) if "e" in text else int(text)


@cache
def preset(name):
    """The sizes of a model that the form may change, and its kinds of layers."""
    model = known_model(name)
    mlp = None if model.mlp is None else vars(model.mlp)
    return model, mlp, model.kind_sizes()


def set_sizes(texts):
    """The sizes of a model, its MLP and its kinds of layers, with those that the texts change."""
    model, known, kinds = preset(texts["model"])
    sizes = {name: getattr(model, name) for name in ("embed_dim", "vocabulary", "tied")}
    sizes |= {"learned_positions": model.learned_positions}
    mlp, kinds = dict(known or NO_MLP), [dict(kind) for kind in kinds]
    for name, text in texts.items():
        size, _, number = name.partition(".")
        if size == "mlp":
            mlp[number] = NO_MLP[number] if text == "" else whole(text)
        elif number:
            empty = 0 if size in ("qk_rope_head_dim", "index_heads", "index_dim") else None
            kinds[int(number)][size] = empty if text == "" else whole(text)
        elif name == "tied":
            sizes[name] = {"": None, "true": True, "false": False}[text]
        elif name in ("learned_positions", "devices"):
            sizes[name] = whole(text) or 0
        elif name not in ("model", "device"):
            sizes[name] = whole(text)
    return sizes, mlp, kinds


def in_python(texts):
    """All counts as texts, or the error that a size is impossible."""
    sizes, mlp, kinds = set_sizes(texts)
    unknown = None in (mlp["matrices"], sizes["vocabulary"], sizes["tied"])
    if unknown:  # then these are not looked at
        mlp, sizes = NO_MLP | {"matrices": 1}, sizes | {"vocabulary": 1, "tied": True}
    try:
        cost = serving_cost(
            [kind_cost(sizes["embed_dim"], **kind) for kind in kinds], mlp=MlpSizes(**mlp),
            device=known_accelerator(texts["device"]),
            causal=known_model(texts["model"]).kind == "decoder", **sizes,
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        return f"refused: {error}"
    names = ("cache_bytes", "token_bytes", "attention_parameters") if unknown else vars(cost)
    return {name: str(getattr(cost, name)) for name in names}


def drawn_run(draw, model, device, tokens):
    bits = [str(n) for n in calculator.BITS]
    return {
        "model": model, "device": device, "tokens": str(tokens),
        "batch": str(draw.choice(BATCHES)), "weight_bits": draw.choice(bits),
        "cache_bits": draw.choice(bits), "devices": draw.choice(DEVICES),
    }  # fmt: skip


def test_every_known_model_on_every_accelerator(script):
    """Of each several lengths, and batches, formats and numbers of devices by chance."""
    draw = random.Random(0)
    cases = [
        drawn_run(draw, model, device, tokens)
        for model in COUNTED
        for device in known_accelerators()
        for tokens in LENGTHS
    ]
    assert len(cases) > 5000
    found = script("count", cases)
    for case, answer in zip(cases, found, strict=True):
        assert answer == in_python(case), case
    for case, answer in zip(cases, found, strict=True):
        if "weight_bytes" not in answer:  # the sources don't give the MLP, say
            numbers = known_model(case["model"]).kv_cache_bytes(int(case["tokens"]), 1)
            bits = numbers * int(case["batch"]) * int(case["cache_bits"])
            assert answer["cache_bytes"] == str(-(-bits // 8))
    seen = {name: {answer.get(name, "None") for answer in found} for name in found[0]}
    assert all(len(numbers) > 5 for numbers in seen.values())  # of nothing always the same


NO_SIZES = ("tied", "memory", "bandwidth", "flops")


def test_sizes_that_readers_set(script):
    """Edges and primes in any field; what Python refuses, the form refuses before it counts."""
    draw = random.Random(1)
    models = [{"model": model, "device": "h100"} for model in COUNTED]
    fields = dict(zip(COUNTED, script("fields", models), strict=True))
    cases = []
    for _ in range(4000):
        case = drawn_run(draw, draw.choice(COUNTED), "h100", draw.choice(LENGTHS))
        names = [name for name in fields[case["model"]] if name not in NO_SIZES]
        for name in draw.sample(names, draw.choice([1, 1, 2, 5])):
            case[name] = draw.choice(IMPOSSIBLE if draw.random() < 0.05 else SIZES)
        if draw.random() < 0.3:
            case["tied"] = draw.choice(("true", "false", ""))
        cases.append(case)
    found = script("count", cases)
    counts = [pair for pair in zip(cases, found, strict=True) if not isinstance(pair[1], str)]
    assert 1000 < len(counts) < 3500
    for case, answer in counts:
        assert answer == in_python(case), case
    refused = {answer.split(".")[0] for answer in found if isinstance(answer, str)}
    assert refused >= {
        f"refused: {name}" for name in ("num_kv_heads", "embed_dim", "mlp", "layers")
    }


def test_no_possible_size_is_refused(script):
    """But one larger than 10^24, and more experts or layers of a sort than there are."""
    draw = random.Random(3)
    cases = []
    for model in COUNTED:
        *_, kinds = preset(model)
        for number, kind in enumerate(kinds):
            case = drawn_run(draw, model, "a100", 8192)
            kv_heads = draw.randint(1, 50)
            case[f"num_kv_heads.{number}"] = str(kv_heads)
            case[f"num_heads.{number}"] = str(kv_heads * draw.randint(1, 50))
            names = {"head_dim", "window", *(("kv_lora_rank",) if "kv_lora_rank" in kind else ())}
            names -= {"window"} if "window" not in kind else set()
            case |= {f"{name}.{number}": str(draw.randint(1, 10**6)) for name in names}
            cases.append(case)
    for case, answer in zip(cases, script("count", cases), strict=True):
        assert answer == in_python(case), case


def test_form_shows_the_sizes_of_each_model(script):
    chips = known_accelerators()
    cases = [{"model": name, "device": chips[i % len(chips)]} for i, name in enumerate(COUNTED)]
    for case, fields in zip(cases, script("fields", cases), strict=True):
        model, mlp, kinds = preset(case["model"])
        shown = {name: whole(text) for name, text in fields.items() if name not in NO_SIZES}
        for number, kind in enumerate(kinds):
            sizes = {name: size for name, size in kind.items() if f"{name}.{number}" in shown}
            assert sizes.keys() >= {"layers", "num_heads", "num_kv_heads", "head_dim"}
            assert {name: shown[f"{name}.{number}"] for name in sizes} == sizes
        assert {name: shown[f"mlp.{name}"] for name in mlp or {}} == (mlp or {})
        assert (shown["embed_dim"], shown["vocabulary"]) == (model.embed_dim, model.vocabulary)
        chip = known_accelerator(case["device"])
        sizes = {"memory": 10**9, "bandwidth": 10**9, "flops": 10**12}
        found = {name: round(float(fields[name]) * unit) for name, unit in sizes.items()}
        assert found == {name: getattr(chip, name) for name in sizes}


def test_numbers_are_written_as_in_the_page(script):
    """Up to thousands of the largest unit."""
    draw = random.Random(2)
    for base, units in ((1024, calculator.BYTES), (1000, calculator.TIMES)):
        most = 9990 * base ** (len(units) - 1)
        numbers = [*range(1030), *(int(most ** draw.random()) for _ in range(2000))]
        texts = script("text", [[str(number), base, units] for number in numbers])
        for number, (short, digits) in zip(numbers, texts, strict=True):
            assert short == calculator.scaled(number, base, units)
            assert digits == calculator.significant(number)
