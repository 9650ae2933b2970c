"""Tensors that are written in parts (a constant must not stay that constant), under a mask, as an out argument."""

import pytest
import torch
from support import assert_like_eager

import braze


def test_constant_written_through_slices() -> None:
    def shift(ids: torch.Tensor) -> torch.Tensor:
        out = ids.new_zeros(ids.shape)
        out[:, 1:] = ids[:, :-1].clone()
        out[:, 0] = 2
        out.masked_fill_(out == -100, 1)
        return out

    ids = torch.randint(0, 100, (2, 8))
    ids[0, 3] = -100
    assert torch.equal(braze.compile(shift)(ids), shift(ids))


def test_pieces_that_are_written_one_by_one() -> None:
    def gates(x: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        a, b, d = y.chunk(3, 1)
        a.sigmoid_()
        b[:, 1:].tanh_()
        d.mul_(a).add_(1)
        c = a * c + b
        return c, d.tanh()

    def overlapping(x: torch.Tensor) -> torch.Tensor:
        a, b = (x * 1).expand(2, 4).unbind(0)
        a.add_(1)
        return a + b

    def handed_out(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        pieces = y.chunk(3, 1)
        pieces[0].relu_()
        return pieces

    torch.manual_seed(0)
    x, c = torch.randn(2, 12), torch.randn(2, 4)
    with torch.no_grad():
        for fn, arguments in ((gates, (x, c)), (overlapping, (x[:1, :4],)), (handed_out, (x,))):
            expected, actual = fn(*arguments), braze.compile(fn)(*arguments)
            torch.testing.assert_close(actual, expected)
        first, second, _ = braze.compile(handed_out)(x)
        assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        cell = torch.nn.LSTMCell(3, 5)
        state = torch.randn(2, 5), torch.randn(2, 5)
        torch.testing.assert_close(braze.compile(cell)(x[:, :3], state), cell(x[:, :3], state))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_elements_under_a_mask(dtype):
    def f(x, y):
        x[x > 1] = 3
        y[y.bool()] = x.max()
        z = x * 2
        z[z == 2] = z[0, 0]
        z[:, 1][y[:, 0].bool()] = 1
        z.t()[(x < 1).t()] = 5
        z[y[:, 1].bool()] = 0
        return z, x + y

    def numbers():
        return torch.arange(12).reshape(4, 3).remainder(4).to(dtype)

    assert_like_eager(f, numbers, lambda: numbers().flip(0), empty=True)


def test_masks_of_another_shape_are_the_programs_error():
    def f(x, m):
        x[m] = 1
        return x

    compiled = braze.compile(f)
    for m in (torch.ones(3, dtype=torch.bool), torch.ones(2, 1, dtype=torch.bool)):
        with pytest.raises(IndexError):
            f(torch.ones(2, 3), m)
        with pytest.raises(IndexError):
            compiled(torch.ones(2, 3), m)


def test_out_arguments():
    def f(x, y, out):
        torch.maximum(x, y, out=out)
        torch.add(out, y, alpha=2, out=x)
        z = torch.empty_like(x)
        torch.sqrt(x.abs(), out=z)
        torch.lerp(z, x, 0.25, out=z)
        torch.mul(z[0], 2, out=z[1])
        torch.div(y, x[:1], out=y)
        torch.addcmul(z, x, y, value=0.5, out=out)
        torch.neg(x.t(), out=z.t())
        torch.clamp(z, -1.0, 1.0, out=z)
        return z, out * 2

    def numbers():
        return torch.arange(1.0, 13.0).reshape(4, 3)

    assert_like_eager(f, numbers, lambda: numbers().flip(1), lambda: numbers() * 0)


def test_out_arguments_that_are_resized_or_converted():
    def f(x, small, double):
        torch.add(x, 1, out=small)
        torch.mul(x, x, out=double)
        return small * 2, double * 2

    assert_like_eager(
        f, torch.arange(6.0), lambda: torch.empty(0), lambda: torch.zeros(6, dtype=torch.double), empty=True
    )
