"""Markdown with formulas as plain text, for pages that draw no formulas: `$h_t = w^2$` reads hₜ = w²."""

import re
import unicodedata

SIGNS = {
    "cdot": "·",
    "cdots": "⋯",
    "times": "×",
    "partial": "∂",
    "lVert": "‖",
    "rVert": "‖",
    "Vert": "‖",
    "top": "ᵀ",
    "le": "≤",
    "ge": "≥",
    "approx": "≈",
    "infty": "∞",
    "in": "∈",
    "sum": "Σ",
    "to": "→",
    "quad": " ",
    "sqrt": "√",
}
_RAISED = dict(zip("0123456789+-ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", strict=True))
_LOWERED = dict(zip("0123456789+-ijkntx", "₀₁₂₃₄₅₆₇₈₉₊₋ᵢⱼₖₙₜₓ", strict=True))
_FORMULA = re.compile(r"\$\$?(.+?)\$\$?", re.DOTALL)
_CODE_OR_EMPHASIS = re.compile(r"(`[^`]*`)|(?<![\w*])(\*\*?)(\S|\S[^*]*\S)\2(?![\w*])")
_GROUP = r"\{([^{}]*)\}"
_SCRIPT = re.compile(rf"([_^])(?:{_GROUP}|(\S))")


def plain(text: str) -> str:
    """Return the text without the marks of Markdown and TeX, formulas in the characters that come nearest to them."""
    pieces = []
    for place, piece in enumerate(_FORMULA.split(text)):
        pieces.append(formula(piece) if place % 2 else _CODE_OR_EMPHASIS.sub(_unmarked, piece))
    return "".join(pieces)


def formula(tex: str) -> str:
    """Return a formula, without its dollar signs, as a line of text; what it does not know stands by its name."""
    tex = re.sub(r"\\[,;:! ]", " ", tex)
    tex = re.sub(
        r"\\d?frac" + _GROUP + _GROUP, lambda of: f"{{}}{_bracketed(of[1])}/{_bracketed(of[2])}", tex
    )
    tex = re.sub(r"\\sqrt\{([^{}]*)\}", lambda of: rf"\sqrt{{}}{_bracketed(of[1])}", tex)
    tex = re.sub(r"\\(?:text|mathrm|mathbf|operatorname|bar|hat|tilde)" + _GROUP, r"\1", tex)
    tex = re.sub(r"\\([A-Za-z]+)(?: (?=[A-Za-z]))?", lambda of: _sign(of[1]), tex)
    tex = _SCRIPT.sub(_script, tex)
    return re.sub(r"\s+", " ", re.sub(r"[{}\\]", "", tex)).strip()


def _unmarked(found: re.Match[str]) -> str:
    return found[1] or found[3]


def _bracketed(part: str) -> str:
    """Return a numerator or radicand, in brackets where it is a sum."""
    return f"({part})" if re.search(r"[^ ] ?[-+]", part) else part


def _sign(name: str) -> str:
    if name in SIGNS:
        return f" {SIGNS[name]} " if name in ("le", "ge", "approx", "in", "to", "times") else SIGNS[name]
    kind = "CAPITAL" if name[0].isupper() else "SMALL"
    try:
        return unicodedata.lookup(
            f"GREEK {kind} LETTER {name.removeprefix('var').upper().replace('LAMBDA', 'LAMDA')}"
        )
    except KeyError:
        return name


def _script(found: re.Match[str]) -> str:
    """Return an index or exponent in small figures where all of it has some, else behind its sign."""
    sign, script = found[1], found[2] or found[3]
    small = _RAISED if sign == "^" else _LOWERED
    if all(one in small for one in script):
        return "".join(small[one] for one in script)
    if sign == "^" and script in ("ᵀ", "*"):
        return script
    return f"{sign}{script}" if len(script) == 1 else f"{sign}({script})"
