"""A tensor that is created from a constant and then written in parts must not stay that constant."""

import torch

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
