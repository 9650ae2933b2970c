"""Small models of every architecture that `make demo` shows, and others, against eager."""

import pytest
import torch
import transformers as tf
from support import assert_same
from torch import nn

import braze

IDS = {"vocab_size": 99}


def ids(*shape):
    return torch.arange(torch.Size(shape).numel()).view(shape) * 7 % 97


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
MODELS = {
    "bert": lambda: (
        tf.BertModel(tf.BertConfig(**IDS, **SMALL)),
        {"input_ids": ids(2, 9), "attention_mask": torch.tensor([[1] * 9, [1] * 5 + [0] * 4])},
    ),
    "gpt2": lambda: (
        tf.GPT2LMHeadModel(tf.GPT2Config(**IDS, n_embd=32, n_layer=2, n_head=4, n_positions=32, use_cache=False)),
        {"input_ids": ids(2, 9)},
    ),
    "llama": lambda: (
        tf.LlamaForCausalLM(tf.LlamaConfig(**IDS, **SMALL, num_key_value_heads=2, use_cache=False)),
        {"input_ids": ids(2, 9)},
    ),
    "vit": lambda: (
        tf.ViTModel(tf.ViTConfig(**SMALL, image_size=32, patch_size=8)),
        {"pixel_values": torch.randn(2, 3, 32, 32)},
    ),
    "resnet": lambda: (
        tf.ResNetModel(tf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2])),
        {"pixel_values": torch.randn(2, 3, 32, 32)},
    ),
    "t5": lambda: (
        tf.T5Model(tf.T5Config(**IDS, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False)),
        {"input_ids": ids(2, 9), "decoder_input_ids": ids(2, 5)},
    ),
    "distilbert": lambda: (
        tf.DistilBertModel(tf.DistilBertConfig(**IDS, dim=32, n_layers=2, n_heads=4, hidden_dim=64)),
        {"input_ids": ids(2, 9)},
    ),
    "encoder_layer": lambda: (
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        {"src": torch.randn(2, 5, 16)},
    ),
    "convnet": lambda: (
        nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        {"input": torch.randn(2, 3, 8, 8)},
    ),
    "lstm": lambda: (nn.LSTM(8, 16, batch_first=True), {"input": torch.randn(2, 5, 8)}),
}


@pytest.mark.parametrize("name", MODELS)
def test_model(name):
    model, inputs = MODELS[name]()
    model.eval()
    compiled = braze.compile(model)
    with torch.no_grad():
        expected = model(**inputs)
        for _ in range(3):
            assert_same(compiled(**inputs), expected, rtol=1e-4, atol=1e-5)
    stats = braze.stats()
    assert stats["graphs"] >= 1 and stats["recompiles"] == 0
    if name != "lstm":
        assert stats["graphs"] == 1 and stats["graph_breaks"] == 0, stats


@pytest.mark.parametrize("name", ["bert", "llama", "convnet"])
def test_model_in_bfloat16(name):
    model, inputs = MODELS[name]()
    model.eval().bfloat16()
    inputs = {k: v.bfloat16() if v.is_floating_point() else v for k, v in inputs.items()}
    compiled = braze.compile(model)
    with torch.no_grad():
        expected = model(**inputs)
        actual = compiled(**inputs)
    assert_same(actual, expected, rtol=0.1, atol=0.1)


def test_other_sizes_of_the_same_model():
    model, _ = MODELS["bert"]()
    model.eval()
    compiled = braze.compile(model)
    with torch.no_grad():
        for batch, length in ((2, 9), (3, 9), (2, 7), (1, 9), (4, 4)):
            inputs = {"input_ids": ids(batch, length)}
            assert_same(compiled(**inputs), model(**inputs), rtol=1e-4, atol=1e-5)


def test_generate():
    model, _ = MODELS["llama"]()
    model.eval()
    model.config.use_cache = True
    prompt = ids(1, 5)
    arguments = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **arguments)
    compiled = braze.compile(model)
    assert_same(compiled.generate(prompt, **arguments), expected)
    assert braze.compilations() > 0


def test_training_step_is_right():
    """Gradients flow through compiled code as through eager."""
    model, inputs = MODELS["bert"]()
    model.eval()
    compiled = braze.compile(model)
    compiled(**inputs).last_hidden_state.square().mean().backward()
    got = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model(**inputs).last_hidden_state.square().mean().backward()
    assert got
    for n, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(got[n], p.grad, rtol=1e-4, atol=1e-5)
