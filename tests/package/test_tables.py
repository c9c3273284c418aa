"""Tables: every number under its heading, and errors that say what is wrong."""

import subprocess
import sys

import pytest
import torch

from mhattn import table


def cells(text):
    """What stands between the bars of each line: the headings, the dashes, the rows."""
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in text.split("\n")]


def test_each_number_stands_under_its_heading_and_beside_its_row():
    numbers = torch.tensor([[0.125, 10.0, -3.5], [0.0, -0.001, 1e3]])
    head, dashes, *rows = cells(table(numbers, rows=["a", "longer"], columns=["x", "yy", 7]))
    assert head == ["", "x", "yy", "7"]
    assert rows == [["a", "0.12", "10.00", "-3.50"], ["longer", "0.00", "0.00", "1,000.00"]]
    assert [cell.strip("-") for cell in dashes] == ["", ":", ":", ":"]


def test_numbers_end_and_row_headings_start_in_one_column():
    lines = table([[1, 20.5], [300, 4]], rows=["a", "bcd"], columns=["n", "size"], digits=1)
    assert lines.split("\n") == [
        "|     |   n | size |",
        "|-----|----:|-----:|",
        "| a   |   1 | 20.5 |",
        "| bcd | 300 |    4 |",
    ]


def test_chinese_takes_two_places():
    lines = table([[1.0, 2.0]], rows=["猫"], columns=["注意力", "é"]).split("\n")
    assert lines == ["|    | 注意力 |    é |", "|----|-------:|-----:|", "| 猫 |   1.00 | 2.00 |"]
    combined = table([[1]], columns=["e\N{COMBINING ACUTE ACCENT}"])
    assert combined.split("\n")[1:] == ["|--:|", "| 1 |"]


@pytest.mark.parametrize(
    "numbers",
    [
        torch.tensor([[2, 3, 5], [7, 11, 13]]),
        torch.tensor([[2, 3, 5], [7, 11, 13]]).numpy(),
        [[2, 3, 5], [7, 11, 13]],
        ((2, 3, 5), (7, 11, 13)),
        list(torch.tensor([[2, 3, 5], [7, 11, 13]])),
        [[torch.tensor(2), 3, 5], [7, 11, 13]],
    ],
)
def test_integers_keep_their_digits_whatever_holds_them(numbers):
    assert cells(table(numbers))[2:] == [["2", "3", "5"], ["7", "11", "13"]]
    assert cells(table(numbers))[0] == ["0", "1", "2"]


def test_large_numbers_have_commas_and_texts_stay():
    numbers = [[9999, 10_000, -1234567], [9999.5, -10_000.25, "0.1 to 0.2"]]
    assert cells(table(numbers, digits=1))[2:] == [
        ["9,999", "10,000", "-1,234,567"],
        ["9,999.5", "-10,000.2", "0.1 to 0.2"],
    ]


def test_one_axis_is_a_row_and_booleans_are_numbers():
    assert cells(table(torch.tensor([True, False])))[2:] == [["1", "0"]]
    assert cells(table(torch.tensor([0.5, 0.25], requires_grad=True), digits=3))[2:] == [
        ["0.500", "0.250"]
    ]
    assert cells(table([float("nan"), float("-inf")]))[2:] == [["nan", "-inf"]]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: table([[1, 2]], rows=["a", "b"]), ValueError, "rows must be 1 headings, got 2"),
        (lambda: table([[1, 2]], columns="a"), ValueError, "columns must be 2 headings, got 1"),
        (
            lambda: table([[1], [1, 2]]),
            ValueError,
            "numbers must be rows of one length, got [1, 2]",
        ),
        (lambda: table([[1], 2]), ValueError, "rows of one length, got [1, 'a number']"),
        (lambda: table([[]]), ValueError, "numbers must be rows of one length, got [0]"),
        (lambda: table([]), ValueError, "numbers must be rows of one length, got [0]"),
        (lambda: table(torch.tensor(3)), ValueError, "numbers must have one axis or two, got "),
        (lambda: table(torch.zeros(2, 3, 5)), ValueError, "must have one axis or two, got more"),
        (lambda: table([[None]]), TypeError, "must be integers, floats or texts, got None"),
        (lambda: table([[1j]]), TypeError, "must be integers, floats or texts, got 1j"),
        (lambda: table([[1]], rows=["a|b"]), ValueError, "rows must not hold '|' or a line break"),
        (lambda: table([[1]], columns=["a\n"]), ValueError, "or a line break, got 'a\\n'"),
        (lambda: table([[1]], digits=-1), ValueError, "digits must not be negative, got -1"),
    ],
)
def test_errors_name_the_argument_and_the_value(call, kind, message):
    with pytest.raises(kind) as error:
        call()
    assert message in str(error.value)


def test_the_module_itself_needs_no_torch():
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); assert 'torch' not in sys.modules"
    path = sys.modules["mhattn.show.tables"].__file__
    subprocess.run([sys.executable, "-c", code, path], check=True)
