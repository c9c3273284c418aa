"""Chemical reactions whose atoms are known: made by cutting and joining bonds of molecules."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from mhattn.core import checks as check
from mhattn.models.reactions import TOKEN

__all__ = ["REACTION_KINDS", "Reaction", "atom_classes", "draw_reaction", "parse_smiles"]

T = TypeVar("T")
Bonds = list[dict[int, str]]  # of each atom: its neighbours, and the sign of the bond to each
CARBON = "C CC C(C)C CCOC C1CCCC1 CC(F)(F)F Cc1ccccc1 CC1CC1 CCc1ccc(Cl)cc1 CCCCO CC(=O)N(C)C"
CARBON += " C1CCOCC1"
RINGS = "c1ccccc1 c1ccc(F)cc1 c1ccc(OC)cc1 c1cccnc1 c1ccc(C#N)cc1 c1ccc2ccccc2c1 c1cc(C)cc(C)c1"
RINGS += " c1cccs1 c1ccc(C(F)(F)F)cc1 c1ccccc1Cl c1ccc2[nH]ccc2c1 c1ccc(C(C)=O)cc1"
GROUPS = {"alkyl": CARBON.split(), "aryl": RINGS.split(), "any": (CARBON + " " + RINGS).split()}
GROUPS["none"] = [""]
BASE = "O=C([O-])[O-].[K+].[K+]"
# Two molecules with their groups A and B; bonds cut; bonds joined, with their signs; bystanders.
KINDS = {
    "amide": ("[O:3][C:1](=O)", "any", "[N:2]", "any", "13", "12", "CN(C)C=O"),
    "ester": ("[O:3][C:1](=O)", "any", "[O:2]", "alkyl", "13", "12", "O=S(=O)(O)O"),
    "Suzuki": ("[Br:3]", "aryl", "O[B:4](O)", "aryl", "A3 B4", "AB-", BASE + ".[Pd]"),
    "ether": ("[O:1]", "any", "[Br:3]", "alkyl", "B3", "1B", "[H-].[Na+].C1CCOC1"),
    "amine": ("[N:1]", "any", "[Br:3]", "alkyl", "B3", "1B", "CC#N"),
    "aryl amine": ("[N:1]", "any", "[Br:3]", "aryl", "B3", "1B", "Cc1ccccc1.[Pd]"),
    "reductive amination": ("[O:3]=[C:1]", "any", "[N:2]", "any", "13", "12", "[BH4-].[Na+].CO"),
    "sulfonamide": ("[Cl:3][S:1](=O)(=O)", "any", "[N:2]", "any", "13", "12", "CCN(CC)CC.ClCCl"),
    "urea": ("O=[C:1]=[N:3]", "aryl", "[N:2]", "any", "", "12 13", "ClCCl"),
    "hydrolysis": ("C[O:3][C:1](=O)", "any", "[O:2]", "none", "13", "12", "[Li+].[OH-].C1CCOC1"),
    "Sonogashira": ("[Br:3]", "aryl", "[C:1]#C", "any", "A3", "1A", "CCN(CC)CC.[Cu]I"),
    "Grignard": ("Br[Mg:3]", "any", "[O:4]=[C:1]", "any", "A3", "1A 14", "C1CCOC1"),
    "thioether": ("[S:1]", "any", "[F:3]", "aryl", "B3", "1B", "CN(C)C=O." + BASE),
    "Diels-Alder": (
        "[C:1]=[C:2]([C:3]=[C:4])", "any", "[C:5]=[C:6]C(=O)", "any",
        "", "15 46 23= 12 34 56", "Cc1ccccc1",
    ),
}  # fmt: skip
REACTION_KINDS = tuple(KINDS)
"""The names of the reactions that `draw_reaction` can make."""
MARK = re.compile(r":(\w+)\]")


@dataclass(frozen=True)
class Reaction:
    """A reaction, and where its product's atoms come from.

    Attributes:
        kind: one of `REACTION_KINDS`.
        text: its SMILES, ``reactants>>product``.
        origins: for each atom of the product, in the order of the text, the place of its atom
            among those of the reactants.

    Examples:
        >>> Reaction("ether", "CO.BrCC>>CCOC", (4, 3, 1, 0)).origins[2]  # the oxygen
        1
    """

    kind: str
    text: str
    origins: tuple[int, ...]


def parse_smiles(text: str) -> tuple[list[str], Bonds]:
    """Read the atoms of a SMILES, and who is bound to whom.

    Weininger (1988), https://doi.org/10.1021/ci00057a005: neighbours stand side by side, brackets
    hold branches, two equal numbers close a ring, and a full stop separates molecules.

    Args:
        text: of one molecule or of several.

    Returns:
        The atoms as they are written, and for each atom its neighbours with the bonds' signs.

    Raises:
        ValueError: a ring is not closed, or a ring or the end of a branch comes before its start.

    Examples:
        >>> parse_smiles("CC(=O)O")
        (['C', 'C', 'O', 'O'], [{1: ''}, {0: '', 2: '=', 3: ''}, {1: '='}, {1: ''}])
    """
    atoms: list[str] = []
    bonds: Bonds = []
    branches: list[int | None] = []
    rings: dict[str, tuple[int, str]] = {}
    last: int | None = None
    sign = ""
    for token in re.findall(TOKEN, text):
        if token[0].isalpha() or token[0] in "[*":
            atoms.append(token)
            bonds.append({})
            if last is not None:
                bond(bonds, last, len(atoms) - 1, sign)
            last, sign = len(atoms) - 1, ""
        elif token == "(":
            branches.append(last)
        elif token == ")":
            if not branches:
                raise ValueError(f"text must open a branch before it closes one, got {text!r}")
            last = branches.pop()
        elif token in (".", "~", ">>"):
            last = None
        elif token[0].isdigit() or token[0] == "%":
            if last is None:
                raise ValueError(f"text must have an atom before ring {token}, got {text!r}")
            if token in rings:
                other, before = rings.pop(token)
                bond(bonds, other, last, sign or before)
            else:
                rings[token] = last, sign
            sign = ""
        else:
            sign += token
    if rings:
        raise ValueError(f"text must close its rings, got {text!r} with {', '.join(rings)} open")
    return atoms, bonds


def bond(bonds: Bonds, one: int, other: int, sign: str) -> None:
    bonds[one][other] = bonds[other][one] = sign


def atom_classes(atoms: Sequence[str], bonds: Bonds, radius: int | None = None) -> list[str]:
    """Name each atom by itself, its bonds, its neighbours, their neighbours, and so on.

    Atoms with the same name look alike as far as ``radius`` bonds. In small molecules, those that
    look alike at any distance can change places: the two next to the bond in a benzene ring. The
    refinement is that of Weisfeiler and Lehman (1968).

    Args:
        atoms: as `parse_smiles` gives them.
        bonds: as `parse_smiles` gives them.
        radius: how far. Default: all the way.

    Returns:
        A name for each atom; only whether two are equal has a meaning.

    Raises:
        ValueError: radius is negative.

    Examples:
        >>> _, first, second, *_, last = atom_classes(*parse_smiles("Cc1ccccc1"))
        >>> second == last, first == second
        (True, False)
    """
    check.at_least("radius", 0 if radius is None else radius, 0)
    rounds = len(atoms) if radius is None else radius
    names = list(atoms)
    for _ in range(rounds):
        around = [sorted(f"{sign}{names[j]}" for j, sign in near.items()) for near in bonds]
        whole = [f"{name}({' '.join(near)})" for name, near in zip(names, around, strict=True)]
        names = whole if radius is not None else shortened(whole)
    return names


def shortened(names: list[str]) -> list[str]:
    """Other names, equal where these are: their places among all of them in order."""
    places = {name: str(place) for place, name in enumerate(sorted(set(names)))}
    return [places[name] for name in names]


def draw_reaction(kind: str, generator: torch.Generator | None = None) -> Reaction:
    """Draw a reaction of a kind: its groups, the order of the molecules, and how each is written.

    Bonds of the reactants are cut, others joined, and what hangs together with the first new bond
    is the product: so each of its atoms is known. Reactants and product are written anew, each
    from an atom at an end, as is usual. Bystanders (solvent, base, catalyst) stand among them.

    Args:
        kind: one of `REACTION_KINDS`.
        generator: draws the numbers. Default: torch's own.

    Returns:
        The reaction.

    Raises:
        ValueError: kind is not one of `REACTION_KINDS`.

    Examples:
        >>> reaction = draw_reaction("ether", torch.Generator().manual_seed(3))
        >>> len(reaction.origins) == len(parse_smiles(reaction.text.split(">>")[1])[0])
        True
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    first, a, second, b, cuts, joins, agents = KINDS[kind]
    text = first + marked(pick(GROUPS[a], generator), "A") + "."
    atoms, bonds = parse_smiles(text + second + marked(pick(GROUPS[b], generator), "B"))
    places = {found[1]: i for i, atom in enumerate(atoms) if (found := MARK.search(atom))}
    atoms = [bare(atom) for atom in atoms]
    changed = [dict(near) for near in bonds]
    for one, other in map(tuple, cuts.split()):
        del changed[places[one]][places[other]], changed[places[other]][places[one]]
    for one, other, *sign in map(tuple, joins.split()):
        bond(changed, places[one], places[other], "".join(sign))
    parts: list[tuple[str, list[int]]] = [(agent, []) for agent in agents.split(".")]
    rest = set(range(len(atoms)))
    while rest:
        molecule = connected(min(rest), bonds)
        parts.append(spelled(atoms, bonds, molecule, generator))
        rest -= set(molecule)
    order = torch.randperm(len(parts), generator=generator).tolist()
    where: dict[int, int] = {}
    count = 0
    for written, places_of in (parts[i] for i in order):
        where |= {atom: count + k for k, atom in enumerate(places_of)}
        count += len(parse_smiles(written)[0])
    product = connected(places[joins[0]], changed)
    made, places_of = spelled(atoms, changed, product, generator)
    left = ".".join(parts[i][0] for i in order)
    return Reaction(kind, f"{left}>>{made}", tuple(where[atom] for atom in places_of))


def pick(items: Sequence[T], generator: torch.Generator | None) -> T:
    return items[int(torch.randint(len(items), (), generator=generator))]


def marked(group: str, mark: str) -> str:
    """A group whose first atom has the mark, as ``[C:A]``."""
    first = re.match(TOKEN, group)
    return f"[{first[0].strip('[]')}:{mark}]{group[first.end() :]}" if first else group


def bare(atom: str) -> str:
    """Without its mark, and without brackets that it does not need."""
    atom = MARK.sub("]", atom)
    return atom[1:-1] if re.fullmatch(r"\[(Br|Cl|[BCNOSPFIcnos])\]", atom) else atom


def connected(atom: int, bonds: Bonds, without: Sequence[int] = ()) -> list[int]:
    """All atoms that hang together with this one, but for some."""
    found, todo = {atom}, [atom]
    while todo:
        near = set(bonds[todo.pop()]) - found - set(without)
        found |= near
        todo += near
    return sorted(found)


def spelled(
    atoms: list[str], bonds: Bonds, molecule: list[int], generator: torch.Generator | None
) -> tuple[str, list[int]]:
    """A SMILES of the molecule from one of its ends, small branches first; the atoms in order."""
    root = pick([i for i in molecule if len(bonds[i]) == 1] or molecule, generator)
    order: list[int] = []
    children: dict[int, list[int]] = {}
    closing: dict[int, list[int]] = {i: [] for i in molecule}

    def walk(atom: int, parent: int | None) -> None:
        children[atom] = []
        sizes = {j: len(connected(j, bonds, list(children))) for j in bonds[atom]}
        for j in sorted(bonds[atom], key=lambda j: (sizes[j], j)):
            if j not in children:
                children[atom].append(j)
                walk(j, atom)
            elif j != parent and j not in closing[atom]:
                closing[atom].append(j)
                closing[j].append(atom)

    numbers: dict[frozenset[int], int] = {}

    def say(atom: int) -> str:
        order.append(atom)
        text = atoms[atom]
        for j in closing[atom]:
            ring = frozenset((atom, j))
            if ring in numbers:
                text += str(numbers.pop(ring))
            else:
                numbers[ring] = min(set(range(1, 10)) - set(numbers.values()))
                text += bonds[atom][j] + str(numbers[ring])
        told = [bonds[atom][j] + say(j) for j in children[atom]]
        return text + "".join(f"({branch})" for branch in told[:-1]) + "".join(told[-1:])

    walk(root, None)
    return say(root), order
