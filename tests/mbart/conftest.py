"""A tokenizer trained on a little text and a tiny model with random weights, shared by these tests."""

import pytest

from course_lib.language.corpus import generate
from course_lib.mbart.pretraining.config import PretrainConfig
from course_lib.mbart.pretraining.pretrain import random_model
from course_lib.mbart.pretraining.tokenizer import train_tokenizer

TINY = PretrainConfig(
    d_model=16,
    layers=2,
    heads=2,
    ffn_dim=32,
    pieces=400,
    n_meanings=200,
    denoising_steps=8,
    translation_steps=12,
    batch_size=8,
    step_size=1e-2,
    warmup_steps=2,
    precision="float32",
)


@pytest.fixture(scope="session")
def config():
    return TINY


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer([s.text for s in generate(600, seed=0)], pieces=TINY.pieces)


@pytest.fixture(scope="session")
def tiny_model(tokenizer):
    return random_model(TINY, tokenizer, seed=0).eval()


@pytest.fixture(scope="session")
def tiny_directory(tiny_model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    tiny_model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
