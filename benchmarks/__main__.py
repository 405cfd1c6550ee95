"""`make bench` runs every part, `make bench explorer` one of them; `--save` keeps the figures in course_lib/measured."""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from benchmarks.timing import machine, run_module

# Each part and the modules beside this file whose figures it prints.
PARTS = {
    "explorer": ("explorer",),
    "ridge": ("ridge",),
    "mup": ("mup",),
    "newton_schulz": ("newton_schulz",),
    "attention": (
        "attention",
        "kernelized",
        "random_features",
        "ridge_attention",
        "states",
        "scaled_dot_product",
        "rotary",
    ),
    "generation": ("generation",),
    "recall": ("recall",),
    "convolution": ("convolution",),
    "graphs": ("graphs",),
    "recurrent": ("recurrent",),
    "state_space": ("state_space",),
    "pca": ("pca",),
    "erasure": ("erasure",),
    "lora": ("lora",),
    "circuits": ("circuits",),
    "hawkes": ("hawkes",),
    "extraction": ("extraction",),
    "sae": ("sae",),
    "stacked": ("stacked",),
    "kinds": ("kinds",),
    "features": ("features",),
    "concept_kinds": ("concept_kinds",),
    "causes": ("causes",),
    "browse": ("browse",),
    "socp": ("socp",),
}
RESULTS = Path(__file__).resolve().parents[1] / "course_lib" / "measured"


def main() -> None:
    """Run the named parts and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}; all without one"
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help="write the figures to course_lib/measured (on a GPU to measured/gpu)",
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"PART must be among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    # Figures are those of one thread, in the peers' libraries too.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    for part in chosen.parts or PARTS:
        figures = {}
        for module in PARTS[part]:
            # In a process of its own: what one leaves to the memory allocator changes the times of the next.
            with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
                figures |= pool.submit(run_module, module).result()
        print(f"{part}: median [quartiles]")
        for name, spread in figures.items():
            print(f"  {name:58s} {spread}")
        if chosen.save:
            kept = {
                "machine": machine(),
                "figures": {name: asdict(spread) for name, spread in figures.items()},
            }
            place = RESULTS / "gpu" if "gpu" in kept["machine"] else RESULTS
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{part}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
