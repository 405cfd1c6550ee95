import json
import random
import shutil
import sys
import types

import pytest
import torch

from course_lib.sae import (
    Autoencoder,
    BatchTopKSparseAutoencoder,
    CrosscoderSparseAutoencoder,
    GatedSparseAutoencoder,
    GroupBiasAdaptedAutoencoder,
    JumpReluSparseAutoencoder,
    KLSparseAutoencoder,
    MatryoshkaBatchTopKSparseAutoencoder,
    MatryoshkaTopKSparseAutoencoder,
    ReluSparseAutoencoder,
    SparseAutoencoder,
    StackedAutoencoder,
    TopKSparseAutoencoder,
    load,
    save,
)


def rows():
    return torch.randn(9, 16, generator=torch.Generator().manual_seed(0)) * 2 + 5


BUILT = {
    "stacked": lambda: StackedAutoencoder(16, (8, 4), beta=0.1, rho=0.1),
    "stacked with a head": lambda: StackedAutoencoder(16, n_outputs=3, gamma=0.5),
    "tied": lambda: StackedAutoencoder(16, (8, 4), tied=True),
    "relu": lambda: ReluSparseAutoencoder(16, 40, l1=0.2),
    "float64": lambda: ReluSparseAutoencoder(16).double(),
    "kl": lambda: KLSparseAutoencoder(16, 40, beta=0.2, rho=0.1),
    "topk": lambda: TopKSparseAutoencoder(16, 40, k=3),
    "batch topk": lambda: BatchTopKSparseAutoencoder(16, 40, k=3),
    "jump": lambda: JumpReluSparseAutoencoder(16, 40, penalty="tanh", threshold=0.2),
    "topk, aux": lambda: TopKSparseAutoencoder(16, 40, k=3, aux_k=5, aux_weight=0.1, dead_after=7),
    "matryoshka": lambda: MatryoshkaTopKSparseAutoencoder(16, 40, k=3, prefixes=(3, 40)),
    "matryoshka of a batch": lambda: MatryoshkaBatchTopKSparseAutoencoder(16, 40, k=3, aux_k=5),
    "gated": lambda: GatedSparseAutoencoder(16, 40, l1=0.2),
    "crosscoder": lambda: CrosscoderSparseAutoencoder(16, 40, sites=(12, 4), l1=0.2),
    "crosscoder, topk": lambda: CrosscoderSparseAutoencoder(16, 40, sites=(12, 2, 2), k=3),
    "gba": lambda: GroupBiasAdaptedAutoencoder(16, 40, groups=3, highest=0.2),
}


@pytest.fixture(params=BUILT)
def model(request):
    built = BUILT[request.param]()
    built.fit_normalisation(rows())
    with torch.no_grad():  # nothing as it was made
        for value in (*built.parameters(), *built.buffers()):
            if value.is_floating_point():
                value += 0.1
    return built


def test_what_is_saved_comes_back_equal(model, tmp_path):
    save(model, tmp_path / "a" / "b")
    back = load(tmp_path / "a" / "b")
    assert type(back) is type(model)
    assert back.config() == model.config()
    x = rows().to(model.input_mean.dtype)
    assert torch.equal(back(x), model(x))
    assert torch.equal(back.encode(x), model.encode(x))


def test_nothing_is_overwritten(model, tmp_path):
    save(model, tmp_path / "model")
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    with pytest.raises(FileExistsError, match="already holds something"):
        save(ReluSparseAutoencoder(4), tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_empty_directory_may_be_filled(tmp_path):
    (tmp_path / "out").mkdir()
    save(ReluSparseAutoencoder(4), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


def without_digest(config):
    """Let config.json be one that no digest protects."""
    description = json.loads(config.read_text())
    del description["sha256"]
    config.write_text(json.dumps(description))


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        load(tmp_path)
    save(ReluSparseAutoencoder(4), tmp_path / "m")
    config, weights = tmp_path / "m" / "config.json", tmp_path / "m" / "model.safetensors"
    without_digest(config)
    good, tensors = config.read_text(), weights.read_bytes()

    for bad in (
        "{",
        "[]",
        json.dumps({"kind": "other", "config": {}}),
        good.replace("n_features", "n_feature"),
    ):
        config.write_text(bad)
        with pytest.raises(ValueError, match=r"config\.json does not describe"):
            load(tmp_path / "m")
    config.write_text(good.replace('"n_features": 16', '"n_features": 17'))
    with pytest.raises(ValueError, match="does not hold the weights"):
        load(tmp_path / "m")
    config.write_text(good)
    weights.write_bytes(tensors[:-8])
    with pytest.raises(ValueError, match="does not hold the weights"):
        load(tmp_path / "m")
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors is missing"):
        load(tmp_path / "m")


def test_no_changed_byte_goes_unnoticed(tmp_path):
    rng = random.Random(0)
    made = TopKSparseAutoencoder(6, 10, k=2)
    save(made, tmp_path / "m")
    said, same = [], 0
    for name in ("config.json", "model.safetensors"):
        path = tmp_path / "m" / name
        good = path.read_bytes()
        for place in rng.sample(range(len(good)), 100):
            changed = bytearray(good)
            changed[place] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
            try:
                back = load(tmp_path / "m")
            except ValueError as error:
                said.append(str(error))
            else:  # a blank for another, or the name of the digest
                assert (
                    json.loads(path.read_text()).items() >= {"kind": "topk", "config": made.config()}.items()
                )
                assert all(torch.equal(v, back.state_dict()[k]) for k, v in made.state_dict().items())
                same += 1
        path.write_bytes(good)
    assert len(said) >= 180
    assert len(said) + same == 200
    assert all(str(tmp_path / "m") in text for text in said)


def test_files_of_the_time_when_relu_was_the_only_sparse_kind_are_read(tmp_path):
    model = ReluSparseAutoencoder(16, 40, l1=0.2)
    save(model, tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    without_digest(config)
    config.write_text(config.read_text().replace('"relu"', '"sparse"'))
    back = load(tmp_path / "m")
    assert type(back) is ReluSparseAutoencoder
    assert torch.equal(back.decoder_weight, model.decoder_weight)
    assert back.decoder_weight.stride() == model.decoder_weight.stride()


# --- The hub -------------------------------------------------------------------------------------------


class FakeHub:
    """Repositories in a folder, in the place of huggingface_hub."""

    def __init__(self, folder):
        self.folder, self.asked = folder, []

    def HfApi(self, token=None):  # noqa: N802
        self.asked.append(("token", token))
        return self

    def create_repo(self, repo_id, *, private, exist_ok):
        self.asked.append(("create", repo_id, private, exist_ok))
        return types.SimpleNamespace(repo_id=f"me/{repo_id}")

    def upload_folder(self, *, repo_id, folder_path, revision, commit_message):
        self.asked.append(("upload", repo_id, revision, commit_message))
        shutil.copytree(folder_path, self.folder / repo_id)

    def snapshot_download(self, repo_id, *, allow_patterns, revision, token, local_files_only):
        self.asked.append(("download", repo_id, allow_patterns, revision, token, local_files_only))
        if not (self.folder / repo_id).is_dir():
            raise OSError("404: no such repository")
        return str(self.folder / repo_id)


@pytest.fixture
def fake_hub(tmp_path, monkeypatch):
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return fake


def test_an_autoencoder_goes_to_the_hub_and_comes_back(model, fake_hub):
    assert model.push_to_hub("mine", private=True, token="t") == "me/mine"
    assert fake_hub.asked == [
        ("token", "t"),
        ("create", "mine", True, True),
        ("upload", "me/mine", None, "Upload autoencoder"),
    ]
    assert sorted(path.name for path in (fake_hub.folder / "me" / "mine").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    for cls in (Autoencoder, type(model)):
        back = cls.from_pretrained("me/mine", revision="main", token="t", local_files_only=True)
        assert type(back) is type(model)
        assert torch.equal(back(rows().to(model.input_mean)), model(rows().to(model.input_mean)))
    names = ["config.json", "model.safetensors"]
    assert fake_hub.asked[-1] == ("download", "me/mine", names, "main", "t", True)


def test_another_kind_and_a_repository_that_is_not_there_are_named(fake_hub, tmp_path):
    TopKSparseAutoencoder(16, 40, k=3).save_pretrained(tmp_path / "sparse")
    with pytest.raises(ValueError, match=r"its kind is 'topk'; expected stacked"):
        StackedAutoencoder.from_pretrained(tmp_path / "sparse")
    assert isinstance(SparseAutoencoder.from_pretrained(tmp_path / "sparse"), TopKSparseAutoencoder)
    assert isinstance(SparseAutoencoder.from_pretrained(tmp_path, subfolder="sparse"), TopKSparseAutoencoder)
    with pytest.raises(FileNotFoundError, match=r"source is 'me/none'; expected a directory, or .*404"):
        Autoencoder.from_pretrained("me/none")
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        Autoencoder.from_pretrained(tmp_path)
    with pytest.raises(FileExistsError):
        TopKSparseAutoencoder(16, 40, k=3).save_pretrained(tmp_path / "sparse")


def test_without_the_hub_s_package_the_error_names_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(RuntimeError, match="huggingface_hub is not installed"):
        TopKSparseAutoencoder(16, 40, k=3).push_to_hub("mine")
    TopKSparseAutoencoder(16, 40, k=3).save_pretrained(tmp_path / "a")
    Autoencoder.from_pretrained(tmp_path / "a")  # a directory needs none
