"""Convolutions run on channels-last images; what the program sees has eager's layout."""

import math

import pytest
import torch
from support import assert_like_eager
from torch import nn

import braze


class Residual(nn.Module):
    """Convolution, normalisation, pooling, a residual connection, gating by channel, and a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.a = nn.Sequential(nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16), nn.Hardswish())
        self.b = nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 16, 1), nn.Sigmoid())
        self.c = nn.Conv2d(16, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        y = self.b(self.a(x))
        y = x + self.c(y * self.gate(y))
        return y, self.head(y.mean((2, 3)))


def both(fn, *arguments):
    with torch.no_grad():
        expected, actual = fn(*arguments), braze.compile(fn)(*arguments)
    expected = expected if isinstance(expected, tuple) else (expected,)
    actual = actual if isinstance(actual, tuple) else (actual,)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)
        assert a.stride() == e.stride()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 33, 41), (1, 3, 16, 16)])
def test_residual_block(size, channels_last):
    torch.manual_seed(0)
    x = torch.randn(size)
    both(Residual().eval(), x.to(memory_format=torch.channels_last) if channels_last else x)


def conv(x, channels=6, **options):
    weight = torch.linspace(-1, 1, channels * x.shape[1] * 9).reshape(channels, x.shape[1], 3, 3)
    return nn.functional.conv2d(x, weight, padding=1, **options)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: conv(x).flatten(2).transpose(1, 2) + 1,
        lambda x: conv(x).permute(0, 2, 3, 1).softmax(-1),
        lambda x: conv(torch.cat([conv(x), x], 1)),
        lambda x: conv(nn.functional.pad(conv(x), (0, 1, 0, 1))),
        lambda x: conv(x)[:, 1:3].contiguous() * 2,
        lambda x: (conv(x), conv(x).relu(), conv(x).view(2, -1)),
        lambda x: conv(x).relu_().add_(1),
        lambda x: nn.functional.interpolate(conv(x), scale_factor=2, mode="bilinear"),
        lambda x: nn.functional.layer_norm(conv(x).permute(0, 2, 3, 1), (6,)).permute(0, 3, 1, 2) + conv(x),
        lambda x: conv(x, 1) * x,
        lambda x: conv(x[..., :1, :1]),
        lambda x: nn.functional.max_pool2d(conv(x).sigmoid(), 2, return_indices=True),
        lambda x: conv(x.double().float().bfloat16().float()).bfloat16(),
        lambda x: conv(x).argmax(1),
        lambda x: conv(x).var((1, 2, 3)),
    ],
)
def test_what_follows_a_convolution(fn):
    both(fn, torch.randn(2, 3, 8, 12))


def test_sizes_that_change():
    with torch.no_grad():
        net = Residual().eval()
        compiled = braze.compile(net, dynamic=True)
        for n in (2, 3, 5):
            x = torch.randn(n, 3, 16 + n, 20)
            for a, e in zip(compiled(x), net(x), strict=True):
                torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)
                assert a.stride() == e.stride()


def test_image_that_is_changed():
    def f(x):
        y = conv(x)
        x.add_(1)
        return y + conv(x)

    with torch.no_grad():
        assert_like_eager(f, lambda: torch.linspace(-1, 1, 2 * 3 * 8 * 12).reshape(2, 3, 8, 12), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"padding": 3}, {"padding": 1, "dilation": 2}, {"padding": 2, "stride": 2}])
@pytest.mark.parametrize("groups", [1, 6])
def test_convolution_along_one_axis(groups, options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(6, 6, 4, groups=groups, **options), nn.SiLU()).eval()
    both(net, torch.randn(2, 6, 17))
    both(lambda x: net(x.transpose(1, 2))[..., :9].transpose(1, 2), torch.randn(2, 17, 6))
    both(nn.Conv1d(6, 6, 3, groups=6, bias=False).double(), torch.randn(1, 6, 3).double())
    both(net, torch.randn(6, 17))


@pytest.mark.parametrize("size", [(1, 3, 6, 5), (2, 1, 6, 5), (2, 3, 1, 1), (1, 1, 6, 5)])
def test_strides_along_axes_of_size_one(size):
    x = torch.linspace(-2, 2, math.prod(size)).reshape(size).to(memory_format=torch.channels_last)
    for fn in (
        torch.relu,
        torch.abs,
        torch.isnan,
        nn.functional.hardswish,
        nn.functional.celu,
        nn.functional.hardtanh,
        lambda x: nn.functional.group_norm(x, 1),
        lambda x: nn.functional.batch_norm(x, x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])),
        lambda x: torch.stack([x, x], 1),
        lambda x: torch.stack([x, x]),
        lambda x: torch.cat([x, x], 1).softmax(1),
    ):
        both(fn, x)
