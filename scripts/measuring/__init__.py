"""What is measured for the pages, since it depends on the machine; `scripts/measure.py` files it.

- `rounds`: how a benchmark is registered, and what becomes of its rounds.
- `runs`: experiments of stories that train too long for a build.
- `claims`: conclusions of the pages, tried again with fresh seeds.
- `benchmarks`: speed and memory of parts; `variants`: kinds of attention over the length; `steps`:
  what launching a step costs a server, and what other requests change.
- `comparisons`: the same work by other libraries, which `peers` builds.
- `counters`: what published counters of FLOPs see.
- `kernels`: attention without layers around it: SDPA, FlexAttention, caches, packed texts.
- `processes`: one layer or one text on several processes.
- `wild`: what the doctor says of the attention in public libraries; `wild_models` builds them.
- `configurations`: what classes of transformers have and keep, for the atlas of models; `dates`:
  what pages say of when they were first published.
- `clock`: how long calls take on a CPU or a GPU, and which kernels they run.
- `filing`: where a measurement goes; `machine`: what is noted of the machine.
"""

import mhsite  # noqa: F401, so that this clone's package is the one that is measured
