"""One copy of a model over several machines: what fits, and the least time of a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from mhattn.costs import integers as check
from mhattn.costs.hardware import Accelerator
from mhattn.costs.kind_costs import KindCost
from mhattn.costs.layer_sizes import MlpSizes, mlp_weights, mlps_met
from mhattn.costs.links import Link, all_reduce_nanoseconds
from mhattn.costs.model_costs import visible_pairs
from mhattn.costs.model_sizes import ModelSizes
from mhattn.costs.serving import bytes_of, ceil_div

__all__ = ["Chunk", "Replica"]


@dataclass(frozen=True)
class Chunk:
    """What a step computes of one sequence.

    Attributes:
        new: tokens that are computed: a piece of a prompt, or 1.
        past: tokens before them, which are in the cache.
        gives: whether the next token is read off the last one.
        request: whose tokens these are, in the order of `serve`.
    """

    new: int
    past: int
    gives: bool = True
    request: int = 0


@dataclass(frozen=True)
class Replica:
    """A model on ``tensor * context`` machines that work on every step together.

    Times are least times, as in `serving_cost`: on each machine the larger of reading and
    multiplying; then what it sends, by `all_reduce_nanoseconds`. Left out: activations, norms,
    starting a kernel, and expanding latents of earlier pieces of a prompt. Where attention is
    shared out by heads, each machine has the heads of keys that its queries need, or all latents,
    and the matrices that they come from: what several need is copied, kept, read and multiplied
    by each of them. Routers of experts count as if they were cut.

    Attributes:
        model: one of `known_model`, whose layers all keep every token.
        device: each machine.
        near: the link between up to ``together`` machines.
        far: the link between groups of so many. None: as near.
        tensor: how many machines share out heads and matrices.
        context: how many such groups share out the tokens of each sequence.
        attention: ``"heads"``, each machine has some heads of all sequences; ``"sequences"``, all
            heads of some sequences, and the weights of attention whole.
        weight_bits: of each parameter.
        cache_bits: of each number in the cache.
        together: how many machines are near each other.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is too small, tensor does not divide the heads, attention is another
            word, or shares sequences with context > 1; the model's layers drop or choose tokens.

    Examples:
        >>> from mhattn.costs import known_accelerator, known_link, known_model
        >>> chip, link = known_accelerator("h100"), known_link("nvlink-4")
        >>> Replica(known_model("deepseek-v3"), chip, link, tensor=32).copies
        32.0
    """

    model: ModelSizes
    device: Accelerator
    near: Link
    far: Link | None = None
    tensor: int = 1
    context: int = 1
    attention: str = "heads"
    weight_bits: int = 16
    cache_bits: int = 16
    together: int = 8

    def __post_init__(self) -> None:
        for name in ("tensor", "context", "weight_bits", "cache_bits", "together"):
            check.at_least(name, getattr(self, name), 1)
        check.divides("tensor", self.tensor, "the number of heads", self.model.num_heads)
        if self.attention not in ("heads", "sequences"):
            raise ValueError(f"attention must be 'heads' or 'sequences', got {self.attention!r}")
        if self.attention == "sequences" and self.context > 1:
            raise ValueError(f"context must be 1 where sequences are shared, got {self.context}")
        if self.model.kind != "decoder" or self.model.vocabulary is None:
            raise ValueError(f"model must be a decoder of known sizes, got {self.model.title}")
        _ = self._mlp
        if any(k.window or k.state or k.top_keys or k.together for k in self.kinds):
            raise ValueError(f"layers must keep and see every token, not so of {self.model.title}")

    @cached_property
    def kinds(self) -> list[KindCost]:
        """What a layer of each kind keeps and multiplies."""
        return self.model.kind_costs()

    @property
    def machines(self) -> int:
        """How many there are."""
        return self.tensor * self.context

    @property
    def copies(self) -> float:
        """How often each token of the cache is kept, over all machines."""
        groups = self.tensor if self.attention == "heads" else 1
        return groups * self._kept_share / self._all_cached

    # --8<-- [start:memory]
    @cached_property
    def weight_bytes(self) -> int:
        """Weights on each machine."""
        return self._bytes(self._own_attention) + ceil_div(self._bytes(self._rest), self.tensor)

    @cached_property
    def cache_tokens(self) -> int:
        """Tokens that fit beside the weights, of all sequences. 0: the weights do not fit."""
        left = max(0, self.device.memory - self.weight_bytes)
        kept = bytes_of(self._all_cached, self.cache_bits)
        return int(left * self.machines / (self.copies * kept))

    # --8<-- [end:memory]

    # --8<-- [start:step_nanoseconds]
    def step_nanoseconds(self, chunks: Sequence[Chunk]) -> int:
        """Least time to compute some tokens of some sequences, all in one step.

        Args:
            chunks: for each sequence, what is computed of it.

        Returns:
            Nanoseconds: work and waiting for each other.

        Raises:
            ValueError: there is nothing to compute, or a chunk has no tokens or a negative past.

        Examples:
            >>> from mhattn.costs import known_accelerator, known_link, known_model
            >>> llama = known_model("llama-3.1-8b")
            >>> one = Replica(llama, known_accelerator("h100"), known_link("nvlink-4"))
            >>> one.step_nanoseconds([Chunk(1, 8191)]) == llama.serving(
            ...     8192, one.device).step_nanoseconds
            True
        """
        if not chunks or any(chunk.new < 1 or chunk.past < 0 for chunk in chunks):
            raise ValueError(f"chunks must have tokens to compute, got {list(chunks)}")
        seconds = max(self._multiplying(chunks), self._reading(chunks), self._ring(chunks))
        return seconds + self.waiting_nanoseconds(chunks)
        # --8<-- [end:step_nanoseconds]

    def waiting_nanoseconds(self, chunks: Sequence[Chunk]) -> int:
        """The part of a step's time in which machines add up what each has.

        Args:
            chunks: for each sequence, what is computed of it.

        Returns:
            Nanoseconds. With one machine, 0.

        Examples:
            Two sums in each of 32 layers, each of two rounds of 3330 ns, and of some bytes.

            >>> from mhattn.costs import known_accelerator, known_link, known_model
            >>> chip, link = known_accelerator("h100"), known_link("nvlink-4")
            >>> two = Replica(known_model("llama-3.1-8b"), chip, link, tensor=2)
            >>> two.waiting_nanoseconds([Chunk(1, 100)]) == 32 * 2 * (2 * 3330 + 8192 // 450)
            True
        """
        new = sum(chunk.new if chunk.new == 1 else self._own(chunk.new) for chunk in chunks)
        sums = 2 if self.attention == "heads" else 1
        size = new * self.model.embed_dim * 2  # bfloat16
        total = sums * all_reduce_nanoseconds(size, self.tensor, self.near, self.far, self.together)
        single = sum(chunk.new == 1 for chunk in chunks)
        if self.context > 1 and single:
            numbers = single * self.model.num_heads // self.tensor
            for width in (1, self._value_width + 1):  # a maximum; a mix and its total, float32
                size, link = numbers * width * 4, self._between_groups
                total += all_reduce_nanoseconds(size, self.context, link, together=self.context)
        return self.model.layers * total

    def _multiplying(self, chunks: Sequence[Chunk]) -> int:
        """Nanoseconds to multiply what one machine multiplies."""
        mlp = mlp_weights(self._mlp, self.model.embed_dim, self.model.layers, self._mlp.per_token)
        shared = 0  # by all machines of the group with the same tokens
        alone = [0] * self.tensor  # of one machine
        for index, chunk in enumerate(chunks):
            own = chunk.new if chunk.new == 1 else self._own(chunk.new)
            pairs = visible_pairs(chunk.new, chunk.new + chunk.past)
            each = sum(
                kind.layers * (kind.step if chunk.new == 1 else kind.pair) for kind in self.kinds
            )
            scores = self._own(pairs * each)
            shared += own * mlp + (self._head if chunk.gives else 0)
            if self.attention == "heads":
                shared += scores
                alone[0] += own * self._own_attention  # as much on each machine
            else:
                alone[index % self.tensor] += own * self._own_attention + scores
        flops = 2 * (shared + self.tensor * max(alone))
        return flops * 10**9 // (self.tensor * self.device.flops)

    def _reading(self, chunks: Sequence[Chunk]) -> int:
        """Nanoseconds to move what one machine moves: weights that are met, and the cache."""
        tokens = sum(chunk.new for chunk in chunks)
        met = self._head + mlps_met(self._mlp, self.model.embed_dim, self.model.layers, tokens)
        met = ceil_div(self._bytes(met), self.tensor) + self._bytes(self._own_attention)
        kept = [0] * self.tensor
        for index, chunk in enumerate(chunks):
            place = 0 if self.attention == "heads" else index % self.tensor
            kept[place] += self._own(chunk.new + chunk.past) * self._kept_share
        moved = met + bytes_of(max(kept), self.cache_bits)
        return moved * 10**9 // self.device.bandwidth

    def _ring(self, chunks: Sequence[Chunk]) -> int:
        """Nanoseconds to pass on keys and values of prompts, while machines compute."""
        if self.context == 1:
            return 0
        tokens = sum(chunk.new + chunk.past for chunk in chunks if chunk.new > 1)
        sent = bytes_of(tokens * self._kept_share, self.cache_bits) * (self.context - 1)
        return sent * 10**9 // (self.context * self._between_groups.bandwidth)

    def _own(self, tokens: int) -> int:
        """The part of a sequence that a group has."""
        return ceil_div(tokens, self.context)

    @property
    def _between_groups(self) -> Link:
        far = self.near if self.far is None else self.far
        return self.near if self.machines <= self.together else far

    @property
    def _mlp(self) -> MlpSizes:
        if self.model.mlp is None:
            raise ValueError(f"model must be a decoder of known sizes, got {self.model.title}")
        return self.model.mlp

    @cached_property
    def _own_attention(self) -> int:
        """Weights of attention that a machine has: all, or its heads and what makes its cache."""
        if self.attention == "sequences":
            return sum(kind.layers * kind.weights for kind in self.kinds)
        latent = self.model.latent  # each machine needs those of the queries whole, too
        queries = (latent.q_lora_rank or 0) if latent else 0
        own = 0
        for kind in self.kinds:
            copied = self.model.embed_dim * (kind.cached + queries)
            cut = (kind.weights - copied) // self.tensor
            own += kind.layers * (cut + copied * self._own_parts(kind) // kind.parts)
        return own

    @cached_property
    def _head(self) -> int:
        return (self.model.vocabulary or 0) * self.model.embed_dim

    @cached_property
    def _rest(self) -> int:
        """Weights of all but attention."""
        tables = self._head * (1 if self.model.tied else 2)
        tables += self.model.learned_positions * self.model.embed_dim
        return tables + mlp_weights(
            self._mlp, self.model.embed_dim, self.model.layers, self._mlp.experts
        )

    @cached_property
    def _all_cached(self) -> int:
        """Numbers that a token adds to the cache."""
        return sum(kind.layers * kind.cached for kind in self.kinds)

    @cached_property
    def _kept_share(self) -> int:
        """Those of them that a machine has: of its heads, or all."""
        if self.attention == "sequences":
            return self._all_cached
        return sum(
            kind.layers * kind.cached * self._own_parts(kind) // kind.parts for kind in self.kinds
        )

    def _own_parts(self, kind: KindCost) -> int:
        """Heads of keys that the queries of a machine need, at most; of a latent, the one."""
        own = self.model.num_heads // self.tensor
        group = self.model.num_heads // kind.parts  # heads of queries for each
        return (group - gcd(own, group) + own - 1) // group + 1  # of those who begin in the middle

    @property
    def _value_width(self) -> int:
        latent = self.model.latent
        return latent.kv_lora_rank if latent else self.model.v_head_dim

    def _bytes(self, numbers: int) -> int:
        return bytes_of(numbers, self.weight_bits)
