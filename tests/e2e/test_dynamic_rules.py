"""Operators keep sizes symbolic: one compilation for the first size, one for all others; forward and backward."""

import pytest
import torch
import torch.nn.functional as F
from support import assert_same

import braze


def image(n):
    return (torch.randn(2, 4, n, n + 3),)


def rows(n):
    return (torch.randn(n, 3), torch.randint(0, 5, (n,)))


PROGRAMS = {
    "interpolate to sizes": (
        lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] // 2), mode="bilinear"),
        image,
    ),
    "interpolate by a factor": (lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"), image),
    "interpolate, corners": (lambda x: F.interpolate(x, scale_factor=3, mode="bicubic", align_corners=True), image),
    "interpolate to constant sizes": (lambda x: F.interpolate(x, size=(5, 4), mode="bicubic"), image),
    "interpolate by fractions": (lambda x: F.interpolate(x, scale_factor=(0.5, 1.75), mode="nearest"), image),
    "adaptive pools": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)) + F.adaptive_max_pool2d(x, (3, 2)), image),
    "pools": (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), image),
    "unfold": (lambda x: F.unfold(x, 2, padding=1), image),
    "windows": (lambda x: x.unfold(3, 3, 2).mean(-1), image),
    "reflection": (lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), image),
    "replication": (lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), image),
    "group norm": (lambda x: F.group_norm(x, 2), image),
    "layer norm": (lambda x: F.layer_norm(x, x.shape[-1:]), image),
    "convolution": (lambda x: F.conv2d(x, x.new_ones(3, 4, 3, 3), padding=1, stride=2), image),
    "transposed convolution": (
        lambda x: F.conv_transpose2d(x, x.new_ones(4, 3, 3, 2), stride=2, padding=1, output_padding=1, groups=2),
        image,
    ),
    "downward range": (lambda x: x[0, 0, 0] * torch.arange(x.shape[3], 0, -1), image),
    "downward range with steps": (lambda x: torch.arange(x.shape[2] - 1, -1, -2) + x[0, 0, 0, 0], image),
    "item from the end": (lambda x: x[0, :, x.shape[2] - 1] * x[..., 1, x.shape[3] - 2, None], image),
    "last row": (lambda x, i: x[x.shape[0] - 1] * i[x.shape[0] // 2], rows),
    "diagonal": (lambda x: x.diagonal(1, 2, 3) * 2, image),
    "split in two": (lambda x: torch.cat([p * 2 for p in x.split((x.shape[3] + 1) // 2, -1)], 2 - 3), image),
    "split by sizes": (lambda x: x.split([2, x.shape[2] - 2], 2)[1] + 1, image),
    "unbound": (lambda x: sum(p * 2 for p in x.unbind(1)), image),
    "fft": (lambda x: torch.fft.fft(x).abs() + torch.fft.irfft(torch.fft.rfft(x), x.shape[-1]), image),
    "eye": (lambda x: torch.eye(x.shape[2], x.shape[3]) * x, image),
    "grid": (
        lambda x: F.grid_sample(
            x, F.affine_grid(x.new_ones(2, 2, 3), list(x.shape), align_corners=False), align_corners=False
        ),
        image,
    ),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t % 3), rows),
    "cross entropy, weights": (lambda x, t: F.cross_entropy(x, t % 3, torch.arange(3.0), reduction="none"), rows),
    "scatter_add": (lambda x, i: x.new_zeros(5, 3).scatter_add(0, i[:, None].expand(-1, 3), x), rows),
    "scatter_": (lambda x, i: torch.zeros(5, 3).scatter_(0, i[:, None].expand(-1, 3), 2.0) + x.sum(), rows),
    "index_add": (lambda x, i: torch.ones(5, 3).index_add(0, i, x), rows),
    "index_put": (lambda x, i: torch.ones(5, 3).index_put((i,), x, accumulate=True), rows),
    "embedding": (lambda x, i: F.embedding(i, torch.ones(5, 3)) * x, rows),
    "cummax": (lambda x, i: x.cummax(0).values + x.logcumsumexp(0), rows),
    "median": (lambda x, i: x.median(0).values + x.kthvalue(2, 0).values, rows),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("grad", [False, True])
def test_sizes_stay_symbolic(name, grad):
    program, arguments = PROGRAMS[name]
    compiled = braze.compile(program)
    before, counts = braze.compilations(), []
    for n in (6, 7, 9, 12):
        torch.manual_seed(n)
        x, *rest = arguments(n)
        a, b = x.clone().requires_grad_(grad), x.clone().requires_grad_(grad)
        expected, result = program(a, *rest), compiled(b, *rest)
        assert_same(result, expected, rtol=1e-5, atol=1e-5)
        if expected.requires_grad:
            expected.square().sum().backward()
            result.square().sum().backward()
            assert_same(b.grad, a.grad, rtol=1e-4, atol=1e-4)
        counts.append(braze.compilations() - before)
    assert counts[-1] <= 2, counts


def test_strides_given_by_the_program():
    def program(x):
        return torch.as_strided(x * 2, (x.shape[0] - 1, 3), (2, 1), 1), F.pixel_shuffle(x.view(4, -1, 1), 2)

    compiled = braze.compile(program)
    before = braze.compilations()
    for n in (6, 7, 9):
        x = torch.randn(n, 4)
        assert_same(compiled(x), program(x))
    assert braze.compilations() - before == 2


def test_an_index_out_of_range():
    compiled = braze.compile(lambda x, n: (x[n], x[None, n - 1]))
    for n in (3, 4, 5):
        assert_same(compiled(torch.arange(7.0), n), (torch.tensor(float(n)), torch.tensor([float(n - 1)])))
    with pytest.raises(IndexError):
        compiled(torch.arange(7.0), 9)


def test_errors_are_those_of_the_sizes_at_hand():
    compiled = braze.compile(lambda x: F.pad(x, (3, 3), mode="reflect"))
    for n in (5, 6, 7):
        assert compiled(torch.randn(1, 2, n)).shape == (1, 2, n + 6)
    with pytest.raises(RuntimeError, match="Padding size should be less"):
        compiled(torch.randn(1, 2, 3))
    scattered = braze.compile(lambda x, i: x.scatter_add(0, i, x * 2))
    for n in (5, 6, 7):
        scattered(torch.randn(n, 3), torch.zeros(n, 3, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="Expected index"):
        scattered(torch.randn(6, 3), torch.zeros(8, 4, dtype=torch.int64))
