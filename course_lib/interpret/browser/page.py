"""The page: one HTML document with its style, its script and, where it is exported, its data inside."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2

from course_lib.files import replacing
from course_lib.interpret.browser.index import STRONGEST, FeatureIndex

_HERE = Path(__file__).parent
_MOST_SENTENCES, _MOST_EXAMPLES = 10_000, 200_000
FRAMED_BY = (
    "frame-ancestors 'self' http://127.0.0.1:* http://localhost:* https://127.0.0.1:* https://localhost:*"
)
"""Who may show the page inside another one: JupyterLab on this machine."""


def policy() -> str:
    """The content security policy: this script and this style, no other resource, and requests to the server alone."""
    script, style = (
        f"'sha256-{base64.b64encode(hashlib.sha256(_part(name).encode()).digest()).decode()}'"
        for name in ("page.js", "page.css")
    )
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def page(data: dict[str, Any]) -> str:
    """The document with `data` inside, from which the script reads; any text in it stays text.

    Data stands in a block that browsers do not run, and no `<` in it ends that block.
    """
    content = as_json(data).replace("<", "\\u003c")
    return jinja2.Template(_part("page.html")).render(
        policy=policy(), style=_part("page.css"), script=_part("page.js"), data=content
    )


def export(index: FeatureIndex, path: Path | str, *, n_features: int = 200) -> None:
    """Write the `n_features` strongest features as one static HTML file, which needs neither server nor model.

    It holds the sentences that it shows, of a feature alone or of two together, with the activations of these features.
    Of two together there are fewer than the server shows where the file would hold more than 10,000 sentences or refer
    to them more than 200,000 times, and none where it has more pairs than that.

    Raises ValueError for fewer than 1 feature, and OSError where the file cannot be written.
    """
    if n_features < 1:
        raise ValueError(f"features is {n_features}; expected at least 1")
    chosen = index.ranked()[:n_features].tolist()
    features = {feature: index.feature(feature) for feature in chosen}
    pairs = index.pairs(chosen, examples=len(chosen) * (len(chosen) - 1) // 2 <= _MOST_EXAMPLES)
    held = {row["id"] for one in features.values() for group in one["groups"] for row in group["sentences"]}
    for n in range(STRONGEST, 0, -1):
        pairs = {
            a: {b: (*numbers, examples[:n]) for b, (*numbers, examples) in row.items()}
            for a, row in pairs.items()
        }
        joint = [sentence for row in pairs.values() for *_, examples in row.values() for sentence in examples]
        if len(joint) <= _MOST_EXAMPLES and len(held.union(joint)) <= _MOST_SENTENCES:
            break
    data = {
        "about": index.about,
        "identity": index.identity,
        "concepts": bool(index.concepts),
        "list": index.summary(chosen),
        "features": features,
        "pairs": pairs,
        "sentences": index.codes(held.union(joint), chosen),
    }
    with replacing(path) as file:
        file.write(page(data).encode())


def as_json(value: Any) -> str:
    """JSON that every browser reads: no NaN, and text as it is."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _part(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
