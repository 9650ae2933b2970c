"""torch.amp.GradScaler around compiled models, in compiled steps: scaling, unscale_, steps skipped for infinite gradients,
the scale's growth and fall, saved and loaded."""

import copy

import pytest
import torch
from support import assert_same
from torch import nn, optim
from torch.nn import functional as F

import braze


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def batches(count, infinite=()):
    for i in range(count):
        g = torch.Generator().manual_seed(i)
        x, y = torch.randn(5, 6, generator=g), torch.randint(0, 4, (5,), generator=g)
        if i in infinite:
            x[0, 0] = float("inf")
        yield x, y


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "AdamW": lambda p: optim.AdamW(p, 1e-2),
    "AdamW, foreach": lambda p: optim.AdamW(p, 1e-2, foreach=True),
    "RMSprop": lambda p: optim.RMSprop(p, 1e-3),
}


class Training:
    """A model with its optimizer and scaler; what is compiled is one part of it."""

    def __init__(self, optimizer="SGD", part=None, clip=False, dtype=None, accumulate=1):
        self.model = network()
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        self.clip, self.dtype, self.accumulate, self.scales, self.losses = clip, dtype, accumulate, [], []
        self.count = 0
        compiled = {"model": "forward", "update": "update", "step": "step"}.get(part)
        if compiled == "forward":
            self.forward = braze.compile(self.model)
        elif compiled:
            setattr(self, compiled, braze.compile(getattr(self, compiled)))

    def forward(self, x):
        return self.model(x)

    def update(self):
        if self.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def step(self, x, y, last):
        with torch.autocast("cpu", self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            loss = F.cross_entropy(self.forward(x), y) / self.accumulate
        self.scaler.scale(loss).backward()
        if last:
            self.update()
        return loss.detach()

    def run(self, count, infinite=()):
        for x, y in batches(count, infinite):
            self.count += 1
            self.losses.append(self.step(x, y, self.count % self.accumulate == 0))
            self.scales.append(self.scaler.get_scale())


def assert_same_training(mine, theirs, **tolerance):
    assert mine.scales == theirs.scales
    tolerance = tolerance or {"rtol": 1e-5, "atol": 1e-5}
    assert_same(mine.losses, theirs.losses, equal_nan=True, **tolerance)
    assert_same(mine.model.state_dict(), theirs.model.state_dict(), **tolerance)
    assert_same(mine.optimizer.state_dict()["state"], theirs.optimizer.state_dict()["state"], **tolerance)
    assert mine.scaler.state_dict() == theirs.scaler.state_dict()


PARTS = ["model", "update", "step"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_with_infinite_gradients(optimizer, part):
    mine, theirs = Training(optimizer, part), Training(optimizer)
    for t in (mine, theirs):
        t.run(9, infinite=(2, 3, 7))
    assert len(set(theirs.scales)) > 2  # it fell and grew
    assert_same_training(mine, theirs)


@pytest.mark.parametrize("part", PARTS)
def test_gradients_are_unscaled_and_clipped(part):
    mine, theirs = Training("AdamW", part, clip=True), Training("AdamW", clip=True)
    for t in (mine, theirs):
        t.run(8, infinite=(0, 4))
    assert_same_training(mine, theirs)


@pytest.mark.parametrize("part", PARTS)
def test_autocast_and_accumulation(part):
    mine, theirs = (Training("SGD", p, dtype=torch.bfloat16, accumulate=2) for p in (part, None))
    for t in (mine, theirs):
        t.run(8, infinite=(3,))
    assert_same_training(mine, theirs, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("part", PARTS)
def test_a_scaler_that_is_saved_and_loaded(part):
    mine, theirs = Training("AdamW", part), Training("AdamW")
    for t in (mine, theirs):
        t.run(3)
        saved = copy.deepcopy((t.scaler.state_dict(), t.optimizer.state_dict(), t.model.state_dict()))
        t.run(5, infinite=(1,))
        t.scaler.load_state_dict(saved[0])
        t.optimizer.load_state_dict(saved[1])
        t.model.load_state_dict(saved[2])
        t.run(4)
    assert_same_training(mine, theirs)


@pytest.mark.parametrize("part", PARTS)
def test_a_scaler_that_is_switched_off(part):
    mine, theirs = Training("SGD", part), Training("SGD")
    for t in (mine, theirs):
        t.scaler = torch.amp.GradScaler("cpu", enabled=False)
        t.run(4)
    assert_same_training(mine, theirs)


def test_misuse_is_the_programs_error():
    t = Training("SGD")

    @braze.compile
    def twice():
        t.scaler.unscale_(t.optimizer)
        t.scaler.unscale_(t.optimizer)

    x, y = next(batches(1))
    t.scaler.scale(F.cross_entropy(t.model(x), y)).backward()
    with pytest.raises(RuntimeError, match="already been called"):
        twice()
    with pytest.raises(AssertionError, match="_scale is None"):
        braze.compile(lambda: torch.amp.GradScaler("cpu").update())()
