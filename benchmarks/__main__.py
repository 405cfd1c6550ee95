"""`make bench` runs every part, `make bench explorer` one of them; `--save` keeps the figures in course_lib/measured."""

import argparse
import json
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, is_dataclass
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks import page
from benchmarks.help_text import HELP_TABLE
from benchmarks.timing import run_module
from course_lib import files
from course_lib.measured import FORMAT

# The one list of parts. Each and the modules beside this file whose figures it prints.
PARTS = {
    "explorer": ("explorer",),
    "first_features": ("first_features",),
    "ridge": ("ridge",),
    "mup": ("mup",),
    "rotated": ("rotated",),
    "width_transfer": ("width_transfer",),
    "rotated_layers": ("rotated_layers",),
    "newton_schulz": ("newton_schulz",),
    "flat_step": ("flat_step",),
    "attention": (
        "attention",
        "kernelized",
        "random_features",
        "ridge_attention",
        "states",
        "scaled_dot_product",
        "rotary",
    ),
    "quadratic_on_gpu": ("quadratic_on_gpu",),
    "generation": ("generation",),
    "recall": ("recall",),
    "averaging": ("averaging",),
    "bursts": ("bursts",),
    "walks": ("walks",),
    "rank_price": ("rank_price",),
    "through_features": ("through_features",),
    "flat_stretches": ("flat_stretches",),
    "idle_heads": ("idle_heads",),
    "almost_mbart": ("almost_mbart",),
    "scaled_slips": ("scaled_slips",),
    "margin_rivals": ("margin_rivals",),
    "margin_cuts": ("margin_cuts",),
    "margin_norms": ("margin_norms",),
    "convolution": ("convolution",),
    "deep_norm": ("deep_norm",),
    "graphs": ("graphs",),
    "deep_graphs": ("deep_graphs",),
    "corners": ("corners",),
    "shifted_corners": ("shifted_corners",),
    "coins": ("coins",),
    "lookup": ("lookup",),
    "recurrent": ("recurrent",),
    "memory_start": ("memory_start",),
    "random_starts": ("random_starts",),
    "state_space": ("state_space",),
    "hidden_system": ("hidden_system",),
    "selective": ("selective",),
    "longer_texts": ("longer_texts",),
    "pca": ("pca",),
    "erasure": ("erasure",),
    "erased_states": ("erased_states",),
    "lora": ("lora",),
    "low_rank_adaptation": ("low_rank_adaptation",),
    "adapter_scale": ("adapter_scale",),
    "circuits": ("circuits",),
    "one_place_back": ("one_place_back",),
    "one_layer_longer": ("one_layer_longer",),
    "hawkes": ("hawkes",),
    "hawkes_maps": ("hawkes_maps",),
    "hawkes_delays": ("hawkes_delays",),
    "extraction": ("extraction",),
    "sae": ("sae",),
    "stacked": ("stacked",),
    "bent_codes": ("bent_codes",),
    "feature_recovery": ("feature_recovery",),
    "feature_choice": ("feature_choice",),
    "feature_units": ("feature_units",),
    "kinds": ("kinds",),
    "features": ("features",),
    "concept_kinds": ("concept_kinds",),
    "across_languages": ("across_languages",),
    "real_text": ("real_text",),
    "real_words": ("real_words",),
    "real_kinds": ("real_kinds",),
    "real_causes": ("real_causes",),
    "causes": ("causes",),
    "exchange": ("exchange",),
    "steering": ("steering",),
    "browse": ("browse",),
    "head_race": ("head_race",),
    "socp": ("socp",),
}
# Parts that read a text which is not part of the project; without its table `make bench` leaves them out.
ON_THE_HELP = ("real_text", "real_words", "real_kinds", "real_causes")
STORE = Path(__file__).resolve().parents[1] / "course_lib" / "measured"


def save(part: str, figures: Mapping[str, Any], known: Mapping[str, Any], store: Path = STORE) -> Path:
    """Write the figures of a part with their origin, and return the file: on a GPU one in `gpu`."""
    origin = {
        "machine": known["machine"],
        "date": date.today().isoformat(),
        "command": f"make bench {part}",
        "versions": known["versions"],
        "seeds": known["seeds"],
    }
    if known["settings"]:
        origin["settings"] = known["settings"]
    stored = {
        "format": FORMAT,
        "origin": origin,
        "figures": {name: asdict(value) if is_dataclass(value) else value for name, value in figures.items()},
    }
    place = store / "gpu" if "gpu" in known["machine"] else store
    place.mkdir(parents=True, exist_ok=True)
    with files.replacing(place / f"{part}.json") as file:
        file.write(json.dumps(stored, indent=1).encode() + b"\n")
    return place / f"{part}.json"


def measure(part: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of a part, and what its processes know of their origin."""
    figures, known = {}, {"seeds": None, "settings": None, "versions": {}}
    for module in PARTS[part]:
        # In a process of its own: what one leaves to the memory allocator changes the times of the next.
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            found, about = pool.submit(run_module, module).result()
        figures |= found
        known |= {name: about[name] or known[name] for name in ("seeds", "settings")}
        known |= {"machine": about["machine"], "versions": known["versions"] | about["versions"]}
    return figures, known


def main() -> None:
    """Run the named parts and print their figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="one of what --list prints; all without one")
    parser.add_argument("--list", action="store_true", help="print the names of the parts and stop")
    parser.add_argument(
        "--page",
        action="store_true",
        help="write what is stored to benchmarks/README.md and to the section 'Measured' of README.md, and stop",
    )
    parser.add_argument(
        "--save",
        action="store_true",
        help="write the figures to course_lib/measured (on a GPU to measured/gpu)",
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"PART must be among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    if chosen.list:
        print(*PARTS, sep="\n")
        return
    if chosen.page:
        page.write()
        return
    # Figures are those of one thread, in the peers' libraries too.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    parts = chosen.parts or [part for part in PARTS if part not in ON_THE_HELP or HELP_TABLE in os.environ]
    for part in parts:
        figures, known = measure(part)
        print(f"{part}: median [quartiles]")
        for name, figure in figures.items():
            print(f"  {name:58s} {figure}")
        if chosen.save:
            print(f"  stored in {save(part, figures, known)}")


if __name__ == "__main__":
    main()
