"""Adapters in PEFT's files: read back by ourselves and, where it is installed, by PEFT, with equal outputs."""

import copy
import importlib.util
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib.representation import peft_format
from course_lib.representation.lora import LoRALinear, adapters, inject, merge, weight_gradients
from tests.representation.test_lora import IDS, shaken, two

needs_peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="PEFT is not installed")
CASES = {
    "plain": {"alpha": 4},
    "rank-stabilised": {"alpha": 4, "scaling": "alpha/sqrt(r)"},
    "dora": {"alpha": 4, "dora": True},
    "dropout": {"alpha": 4, "dropout": 0.25},
    "pissa": {"alpha": 5, "init": "pissa"},
    "pissa, rank-stabilised": {"alpha": 5, "init": "pissa", "scaling": "alpha/sqrt(r)", "dora": True},
    "gradient_svd": {"alpha": 4, "init": "gradient_svd"},
}


def adapted(name: str, targets=("fc1", "block.fc2")):
    """A base in float32 and the same model with a trained-looking adapter."""
    base = two(torch.float32)
    model = copy.deepcopy(base)
    gradients = weight_gradients(model, targets, model(IDS).square().sum())
    inject(model, rank=3, targets=list(targets), gradients=gradients, **CASES[name])
    return base, shaken(model)


@pytest.mark.parametrize("name", CASES)
def test_written_and_read_back(name, tmp_path):
    base, model = adapted(name)
    peft_format.save(model, tmp_path / "adapter")
    made = peft_format.load(base, tmp_path / "adapter")
    assert list(made) == list(adapters(model))
    torch.testing.assert_close(base(IDS), model(IDS), rtol=1e-4, atol=1e-5)
    assert {layer.dropout for layer in made.values()} == {CASES[name].get("dropout", 0.0)}
    merge(model)
    peft_format.save(model, tmp_path / "merged")
    a, b = (load_file(tmp_path / d / peft_format.WEIGHTS) for d in ("adapter", "merged"))
    assert all(torch.equal(a[key], b[key]) for key in a)


@needs_peft
@pytest.mark.parametrize("name", CASES)
def test_peft_reads_what_we_write(name, tmp_path):
    from peft import PeftModel

    base, model = adapted(name)
    wanted = model(IDS)
    assert (wanted - base(IDS)).abs().max() > 0.01
    peft_format.save(model, tmp_path / "adapter", base_model="two")
    theirs = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    torch.testing.assert_close(theirs(IDS), wanted, rtol=1e-4, atol=1e-5)


@needs_peft
@pytest.mark.parametrize(
    "options", [{}, {"use_rslora": True}, {"use_dora": True}, {"lora_dropout": 0.25}], ids=lambda o: str(*o)
)
def test_we_read_what_peft_writes(options, tmp_path):
    from peft import LoraConfig, get_peft_model

    base = two(torch.float32)
    config = LoraConfig(r=3, lora_alpha=5, target_modules=["fc1"], init_lora_weights=False, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        theirs = get_peft_model(copy.deepcopy(base), config).eval()
    theirs.save_pretrained(tmp_path / "adapter")
    made = peft_format.load(base, tmp_path / "adapter")
    assert list(made) == ["block.fc1", "fc1"]
    assert (base(IDS) - two(torch.float32)(IDS)).abs().max() > 1e-3
    torch.testing.assert_close(base(IDS), theirs(IDS), rtol=1e-4, atol=1e-6)


@needs_peft
@pytest.mark.parametrize("dora", [False, True])
def test_a_training_step_is_pefts(dora, tmp_path):
    from peft import PeftModel

    base, model = adapted("dora" if dora else "plain")
    peft_format.save(model, tmp_path / "adapter")
    theirs = PeftModel.from_pretrained(base, tmp_path / "adapter", is_trainable=True)
    for each in (model, theirs):
        each(IDS).square().sum().backward()
    ours = adapters(model)["block.fc2"]
    peer = theirs.base_model.model.block["fc2"]
    pairs = [(ours.lora_A, peer.lora_A.default.weight), (ours.lora_B, peer.lora_B.default.weight)]
    pairs += [(ours.magnitude, peer.lora_magnitude_vector.default.weight)] if dora else []
    for one, other in pairs:
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


@needs_peft
def test_the_start_is_pefts_law():
    from peft import LoraConfig
    from peft.tuners.lora import Linear

    base = torch.nn.Linear(600, 20)
    peer = Linear(base, "default", LoraConfig(r=4), r=4, lora_alpha=8).lora_A.default.weight
    ours = LoRALinear(base, rank=4, alpha=8).lora_A
    assert peer.abs().max() <= 600**-0.5 >= ours.abs().max()
    assert peer.std().item() == pytest.approx(ours.std().item(), rel=0.1)


def test_a_name_that_is_the_ending_of_another_is_written_as_an_expression(tmp_path):
    base = two(torch.float32)
    linears = peft_format.find_linears(base, ["fc1"])
    peft_format.adapt(base, {"fc1": linears["fc1"]}, rank=2, alpha=2)  # not block.fc1
    peft_format.save(shaken(base), tmp_path / "adapter")
    assert json.loads((tmp_path / "adapter" / peft_format.CONFIG).read_text())["target_modules"] == "fc1"
    again = two(torch.float32)
    assert list(peft_format.load(again, tmp_path / "adapter")) == ["fc1"]
    torch.testing.assert_close(again(IDS), base(IDS))


def test_an_adapter_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    _, model = adapted("plain")

    def fail(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr(peft_format.json, "dumps", lambda *_, **__: "{}")
    monkeypatch.setattr(peft_format.Path, "write_text", fail)
    with pytest.raises(OSError, match="full"):
        peft_format.save(model, tmp_path / "adapter")
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    peft_format.save(model, tmp_path / "adapter")
    with pytest.raises(FileExistsError, match="already holds something"):
        peft_format.save(model, tmp_path / "adapter")


def test_what_cannot_be_written():
    with pytest.raises(ValueError, match="model must hold adapters"):
        peft_format.save(two(), "nowhere")
    _, model = adapted("plain")
    model.fc1.alpha = 5
    with pytest.raises(ValueError, match="adapters must all be of one kind"):
        peft_format.save(model, "nowhere")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"peft_type": "IA3"}, "peft_type must be 'LORA', got 'IA3'"),
        ({"bias": "all"}, "bias must be 'none'.*got 'all'"),
        ({"rank_pattern": {"fc1": 2}}, "rank_pattern must be {}"),
        ({"modules_to_save": ["head"]}, "modules_to_save must be None"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights 'pissa_niter_4' changed the base"),
        ({"r": 2}, r"lora_A.weight' with the shape \(2, .*got \(3, "),
        ({"use_dora": True}, "lora_magnitude_vector' with the shape .*got nothing"),
        ({"r": None}, "r must be a number, got None"),
    ],
)
def test_settings_that_these_layers_do_not_have_are_refused(change, said, tmp_path):
    base, model = adapted("plain")
    peft_format.save(model, tmp_path / "adapter")
    config = tmp_path / "adapter" / peft_format.CONFIG
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(ValueError, match=said):
        peft_format.load(base, tmp_path / "adapter")
    assert not adapters(base)


def test_files_that_do_not_belong_to_the_model(tmp_path):
    base, model = adapted("plain")
    with pytest.raises(FileNotFoundError, match=r"adapter_config.json is missing"):
        peft_format.load(base, tmp_path)
    peft_format.save(model, tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"has no 'block.fc1' to adapt"):
        peft_format.load(torch.nn.Sequential(torch.nn.Linear(2, 2)), tmp_path / "adapter")
    save_file({"fc1.lora_A.weight": torch.zeros(3, 6)}, tmp_path / "adapter" / peft_format.WEIGHTS)
    with pytest.raises(ValueError, match=r"names that begin with 'base_model.model.'"):
        peft_format.load(base, tmp_path / "adapter")
    (tmp_path / "adapter" / peft_format.WEIGHTS).write_bytes(b"no")
    with pytest.raises(ValueError, match="does not hold an adapter"):
        peft_format.load(base, tmp_path / "adapter")
