"""Architectures of the transformers library with random weights: published widths, few layers, for two cores."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

Workload = tuple[torch.nn.Module, dict[str, Any]]


def _ids(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, (batch, length), generator=torch.Generator().manual_seed(0))


def bert() -> Workload:
    config = tf.BertConfig(num_hidden_layers=4, vocab_size=8192)
    ids = _ids(2, 128, 8192)
    return tf.BertModel(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def gpt2() -> Workload:
    config = tf.GPT2Config(n_layer=4, vocab_size=8192, bos_token_id=0, eos_token_id=0, use_cache=False)
    return tf.GPT2LMHeadModel(config), {"input_ids": _ids(2, 128, 8192)}


def llama() -> Workload:
    config = tf.LlamaConfig(
        vocab_size=8192,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=4,
        num_attention_heads=12,
        num_key_value_heads=4,
        use_cache=False,
    )
    return tf.LlamaForCausalLM(config), {"input_ids": _ids(2, 128, 8192)}


def vit() -> Workload:
    return tf.ViTModel(tf.ViTConfig(num_hidden_layers=4)), {"pixel_values": torch.randn(2, 3, 224, 224)}


def resnet() -> Workload:
    config = tf.ResNetConfig(layer_type="basic", hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2])
    return tf.ResNetForImageClassification(config), {"pixel_values": torch.randn(2, 3, 224, 224)}


ARCHITECTURES: dict[str, Callable[[], Workload]] = {
    "BERT": bert,
    "GPT-2": gpt2,
    "Llama": llama,
    "ViT": vit,
    "ResNet": resnet,
}


def make(name: str) -> Workload:
    torch.manual_seed(0)
    model, inputs = ARCHITECTURES[name]()
    return model.eval(), inputs
