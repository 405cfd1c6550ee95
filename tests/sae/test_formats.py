"""Files of other libraries, written here by hand in their formats: what is read computes their equations."""

import json
import pickle
import random
from contextlib import suppress

import pytest
import torch
from safetensors.torch import save_file

from course_lib import sae
from course_lib.sae import formats, sae_lens_format
from tests.sae.test_sae_lens_format import made

D, F, K = 12, 30, 5


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(x, t, name):
    return x @ t[f"{name}.weight"].T + t.get(f"{name}.bias", 0)


def largest(z, k):
    top = z.topk(k, dim=1)
    return torch.zeros_like(z).scatter(1, top.indices, top.values)


ENCODER = {"encoder.weight": (F, D), "encoder.bias": (F,), "decoder.weight": (D, F)}
NUMBERS = {"k": torch.tensor(K), "threshold": torch.tensor(0.8, dtype=torch.float64)}
UNSET = {"k": torch.tensor(K), "threshold": torch.tensor(-1.0)}

# For each class of dictionary_learning: its tensors, and its code and reconstruction of states.
DICTIONARIES = {
    "AutoEncoder": (
        ENCODER | {"bias": (D,)},
        {},
        lambda t, x: linear(x - t["bias"], t, "encoder").relu(),
        lambda t, f: linear(f, t, "decoder") + t["bias"],
    ),
    "AutoEncoderNew": (
        ENCODER | {"decoder.bias": (D,)},
        {},
        lambda t, x: linear(x, t, "encoder").relu(),
        lambda t, f: linear(f, t, "decoder"),
    ),
    "AutoEncoderTopK": (
        ENCODER | {"b_dec": (D,)},
        NUMBERS,
        lambda t, x: largest(linear(x - t["b_dec"], t, "encoder").relu(), K),
        lambda t, f: linear(f, t, "decoder") + t["b_dec"],
    ),
    "BatchTopKSAE": (
        ENCODER | {"b_dec": (D,)},
        NUMBERS,
        lambda t, x: (z := linear(x - t["b_dec"], t, "encoder").relu()) * (z > t["threshold"]),
        lambda t, f: linear(f, t, "decoder") + t["b_dec"],
    ),
}


def write_dictionary(directory, kind, numbers=None):
    """Write ae.pt and config.json as dictionary_learning's trainers do; return the tensors."""
    shapes, own, *_ = DICTIONARIES[kind]
    t = {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    t |= own if numbers is None else numbers
    directory.mkdir(exist_ok=True)
    torch.save(t, directory / "ae.pt")
    trainer = {"dict_class": kind, "activation_dim": D, "dict_size": F, "k": K, "lm_name": "some-model"}
    (directory / "config.json").write_text(json.dumps({"trainer": trainer, "buffer": {"d_submodule": D}}))
    return t


def write_sparsify(directory, **settings):
    """Write sae.safetensors and cfg.json as sparsify does; return the tensors."""
    shapes = {"encoder.weight": (F, D), "encoder.bias": (F,), "W_dec": (F, D), "b_dec": (D,)}
    t = {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    directory.mkdir(exist_ok=True)
    save_file(t, directory / "sae.safetensors")
    config = {
        **{"activation": "topk", "expansion_factor": 32, "normalize_decoder": True, "num_latents": F, "k": K},
        **{"multi_topk": False, "skip_connection": False, "transcode": False, "d_in": D},
    }
    (directory / "cfg.json").write_text(json.dumps(config | settings))
    return t


@pytest.mark.parametrize("kind", DICTIONARIES)
def test_a_dictionary_of_dictionary_learning_computes_the_same(kind, tmp_path):
    t, x = write_dictionary(tmp_path / "a", kind), 3 * normal(200, D, seed=9)
    _, _, encode, decode = DICTIONARIES[kind]
    code = encode(t, x)
    assert 0.05 < (code > 0).double().mean() < 0.6
    with torch.no_grad():
        read = formats.load(tmp_path / "a")
        torch.testing.assert_close(read.encode(x), code)
        torch.testing.assert_close(read(x), decode(t, code))


def test_a_threshold_that_was_never_set_is_a_relu_and_one_that_is_met_is_not_passed(tmp_path):
    t = write_dictionary(tmp_path / "a", "BatchTopKSAE", UNSET)
    x = normal(50, D, seed=9)
    with torch.no_grad():
        code = formats.load(tmp_path / "a").encode(x)
    torch.testing.assert_close(code, linear(x - t["b_dec"], t, "encoder").relu())
    t |= {"encoder.weight": torch.eye(F, D), "encoder.bias": torch.zeros(F), "b_dec": torch.zeros(D)}
    t["decoder.weight"], t["threshold"] = torch.zeros(D, F), torch.tensor(0.5)
    torch.save(t, tmp_path / "a" / "ae.pt")
    states = torch.tensor([[0.5, 0.50001] + [0.0] * (D - 2)])
    assert (formats.load(tmp_path / "a").encode(states) > 0)[0, :2].tolist() == [False, True]


def test_k_is_that_of_the_configuration_where_the_tensors_have_none(tmp_path):
    write_dictionary(tmp_path / "a", "AutoEncoderTopK", {})
    assert formats.load(tmp_path / "a").k == K


@pytest.mark.parametrize("settings", [{}, {"num_latents": 0}])
def test_an_autoencoder_of_sparsify_computes_the_same(settings, tmp_path):
    t, x = write_sparsify(tmp_path / "a", **settings), normal(200, D, seed=9)
    code = largest(linear(x - t["b_dec"], t, "encoder").relu(), K)
    with torch.no_grad():
        read = formats.load(tmp_path / "a")
        torch.testing.assert_close(read.encode(x), code)
        torch.testing.assert_close(read(x), code @ t["W_dec"] + t["b_dec"])


def test_this_librarys_files_and_those_of_sae_lens_are_read_too(tmp_path):
    autoencoder, x = made("topk", dtype=torch.float64), normal(50, D, seed=9)
    sae.save(autoencoder, tmp_path / "own")
    sae_lens_format.export(autoencoder, tmp_path / "lens")
    for name in ("own", "lens"):
        torch.testing.assert_close(formats.load(tmp_path / name)(x), autoencoder(x))


def changed(path, change):
    content = json.loads(path.read_text())
    content.get("trainer", content).update(change)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"dict_class": "GatedAutoEncoder"},
            r"config\.json has dict_class 'GatedAutoEncoder'; only AutoEncoder, ",
        ),
        ({"dict_class": None}, r"config\.json has dict_class None"),
        (
            {"dict_class": "AutoEncoder"},
            r"ae\.pt does not fit the configuration beside it: 'bias' is missing",
        ),
        ({"activation_dim": D + 1}, r"ae\.pt .*: d_model is 12 there and 13 in the configuration"),
        ({"dict_size": F + 1}, r"ae\.pt .*: n_features is 30 there and 31 in the configuration"),
    ],
)
def test_a_dictionary_that_cannot_be_read_is_named(change, words, tmp_path):
    write_dictionary(tmp_path / "a", "AutoEncoderTopK")
    changed(tmp_path / "a" / "config.json", change)
    with pytest.raises(ValueError, match=words):
        formats.load(tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation": "groupmax"}, r"cfg\.json has activation 'groupmax'; only 'topk' can be read"),
        ({"transcode": True}, r"cfg\.json has transcode True; only False"),
        ({"skip_connection": True}, "skip_connection True; only False"),
        ({"signed": True}, "signed True; only False"),
        ({"d_in": D + 1}, r"sae\.safetensors .*: d_model is 12 there and 13"),
        ({"k": F + 1}, "k is 31; expected 1 to n_features, 30"),
        ({"k": "four"}, "k must be a whole number"),
    ],
)
def test_an_autoencoder_of_sparsify_that_cannot_be_read_is_named(change, words, tmp_path):
    write_sparsify(tmp_path / "a", **change)
    with pytest.raises(ValueError, match=words):
        formats.load(tmp_path / "a")


class Harmful:
    def __reduce__(self):
        return (print, ("run by a pickle",))


def test_a_pickle_is_not_run(tmp_path, capsys):
    write_dictionary(tmp_path / "a", "AutoEncoder")
    path = tmp_path / "a" / "ae.pt"
    good = path.read_bytes()
    for write in (
        lambda: torch.save({"bias": Harmful()}, path),
        lambda: path.write_bytes(pickle.dumps(Harmful(), protocol=2)),
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(good[:200]),
    ):
        write()
        with pytest.raises(ValueError, match=r"ae\.pt cannot be read as a file of tensors"):
            formats.load(tmp_path / "a")
    rng = random.Random(0)
    for _ in range(100):  # of the pickle, which comes first in the file: refused, or tensors still
        bad = bytearray(good)
        bad[rng.randrange(1200)] = rng.randrange(256)
        path.write_bytes(bad)
        with suppress(ValueError):
            formats.load(tmp_path / "a")
    torch.save([torch.zeros(3)], path)
    with pytest.raises(ValueError, match=r"ae\.pt holds a list; expected tensors by name"):
        formats.load(tmp_path / "a")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("write", "config"), [(write_sparsify, "cfg.json"), (None, "config.json")])
def test_damaged_files_are_named(write, config, tmp_path):
    directory = tmp_path / "a"
    if write is None:
        write_dictionary(directory, "AutoEncoder")
    else:
        write(directory)
        good = (directory / "sae.safetensors").read_bytes()
        (directory / "sae.safetensors").write_bytes(good[:-9])
        with pytest.raises(ValueError, match=r"sae\.safetensors cannot be read"):
            formats.load(directory)
    for bad in ("{", "[]", "\ud800"):
        (directory / config).write_text(bad, errors="surrogatepass")
        with pytest.raises(ValueError, match=config.replace(".", r"\.")):
            formats.load(directory)
    (directory / config).unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no autoencoder; expected .*ae\.pt with config\.json"):
        formats.load(directory)
