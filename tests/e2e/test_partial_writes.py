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
