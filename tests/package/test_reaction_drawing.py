"""Reactions against counts by hand, and what must hold of each."""

import re
from collections import Counter

import pytest
import torch

from mhattn.lessons import REACTION_KINDS, atom_classes, draw_reaction, parse_smiles


def bonds_of(text):
    _, bonds = parse_smiles(text)
    return {(i, j, sign) for i, near in enumerate(bonds) for j, sign in near.items() if i < j}


@pytest.mark.parametrize(
    ("text", "bonds"),
    [
        ("CCO", {(0, 1, ""), (1, 2, "")}),
        ("CC(=O)O", {(0, 1, ""), (1, 2, "="), (1, 3, "")}),
        ("C1CC1", {(0, 1, ""), (1, 2, ""), (0, 2, "")}),
        ("C=1CC1.Br", {(0, 1, ""), (1, 2, ""), (0, 2, "=")}),
        ("C%12CC%12", {(0, 1, ""), (1, 2, ""), (0, 2, "")}),
        ("[O-]->[K+]", {(0, 1, "->")}),
        ("c1(Cl)cn1~[Na+]>>C#N", {(0, 1, ""), (0, 2, ""), (2, 3, ""), (0, 3, ""), (5, 6, "#")}),
    ],
)
def test_bonds_are_read(text, bonds):
    assert bonds_of(text) == bonds


def test_open_ring_is_refused():
    with pytest.raises(ValueError, match="text must close its rings, got 'C1CC' with 1 open"):
        parse_smiles("C1CC")


@pytest.mark.parametrize(
    ("text", "why"),
    [("1CC1", "an atom before ring 1, got '1CC1'"), ("CC)C", "before it closes one, got 'CC.C'")],
)
def test_what_ends_before_it_begins_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        parse_smiles(text)


def test_classes_are_those_that_can_change_places():
    classes = atom_classes(*parse_smiles("CC(C)c1ccc(F)cc1"))
    groups = Counter(classes)
    assert sorted(groups.values()) == [1, 1, 1, 1, 2, 2, 2]  # the ends, and both sides of the ring
    assert classes[0] == classes[2]
    assert classes[4] == classes[9]
    assert classes[5] == classes[8]


def test_classes_to_a_radius():
    atoms, bonds = parse_smiles("CCCCO")
    assert len(set(atom_classes(atoms, bonds, 0))) == 2
    assert len(set(atom_classes(atoms, bonds, 1))) == 4  # C before O, two within, an end, O
    assert len(set(atom_classes(atoms, bonds))) == 5
    with pytest.raises(ValueError, match="radius must be at least 0, got -1"):
        atom_classes(atoms, bonds, -1)


def graph(text):
    """A molecule as its classes: equal for equal molecules, however they are written."""
    return sorted(atom_classes(*parse_smiles(text), radius=8))


EXAMPLES = {  # a reactant's and the product's form, with both groups as methyl or phenyl
    "amide": ("CC(=O)O.NC", "CC(=O)NC"),
    "ester": ("CC(=O)O.OC", "CC(=O)OC"),
    "Suzuki": ("Brc1ccccc1.OB(O)c1ccccc1", "c1ccccc1-c1ccccc1"),
    "hydrolysis": ("COC(=O)C.O", "CC(=O)O"),
    "urea": ("O=C=Nc1ccccc1.NC", "CNC(=O)Nc1ccccc1"),
    "Grignard": ("C[Mg]Br.O=CC", "CC(O)C"),
    "Diels-Alder": ("C=C(C)C=C.C=CC(=O)C", "CC1=CCC(C(C)=O)CC1"),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_product_is_the_known_one(kind, monkeypatch):
    from mhattn.lessons import reactions

    groups = {"alkyl": ["C"], "aryl": ["c1ccccc1"], "any": ["C"], "none": [""]}
    monkeypatch.setattr(reactions, "GROUPS", groups)
    left, right = draw_reaction(kind).text.split(">>")
    expected, made = EXAMPLES[kind]
    molecules = [graph(molecule) for molecule in left.split(".")]
    for molecule in expected.split("."):
        assert graph(molecule) in molecules
    assert graph(right) == graph(made)


@pytest.mark.parametrize("kind", REACTION_KINDS)
def test_atoms_keep_their_element_and_most_neighbours(kind):
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        reaction = draw_reaction(kind, generator)
        left, right = reaction.text.split(">>")
        (before, bonds), (after, changed) = parse_smiles(left), parse_smiles(right)
        origins = reaction.origins
        assert len(origins) == len(set(origins)) == len(after)
        assert [before[i] for i in origins] == after
        new = [
            (i, j) for i, near in enumerate(changed) for j in near
            if origins[j] not in bonds[origins[i]]
        ]  # fmt: skip
        assert len(new) == {"Diels-Alder": 4}.get(kind, 2)  # each from both ends


def test_draws_differ_and_can_be_repeated():
    texts = [draw_reaction("amide", torch.Generator().manual_seed(i)).text for i in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]
    with pytest.raises(ValueError, match=r"kind must be one of amide, .* got 'boiling'"):
        draw_reaction("boiling")


def test_writing_keeps_rings_few():
    """Numbers of rings are used again, as is usual."""
    generator = torch.Generator().manual_seed(0)
    for kind in REACTION_KINDS:
        for _ in range(9):
            text = re.sub(r"\[[^]]*\]", "", draw_reaction(kind, generator).text)
            assert max(map(int, re.findall(r"\d", text)), default=0) <= 3
