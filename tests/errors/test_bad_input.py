"""Wrong input: the message says what was given and what is allowed."""

import subprocess
import sys

import pytest
import torch

import braze
from braze import _options, _versions


def f(x):
    return x * 2


def test_unknown_backend():
    with pytest.raises(braze.UserError) as e:
        braze.compile(f, backend="brase")
    assert (
        str(e.value)
        == "unknown backend 'brase'; allowed are aot_eager, braze, cudagraphs, eager, inductor; did you mean 'braze'?"
    )
    with pytest.raises(braze.UserError, match="unknown backend 3; allowed are"):
        braze.compile(f, backend=3)


def test_unknown_mode():
    with pytest.raises(braze.UserError) as e:
        braze.compile(f, mode="max-autotun")
    assert str(e.value) == (
        "unknown mode 'max-autotun'; allowed are default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs; "
        "did you mean 'max-autotune' or 'max-autotune-no-cudagraphs'?"
    )


def test_unknown_option():
    with pytest.raises(braze.UserError) as e:
        braze.compile(f, options={"max_autotun": True})
    assert str(e.value).startswith("unknown option 'max_autotun'; allowed are guard_filter_fn, recompile_limit, ")
    assert str(e.value).endswith("; did you mean 'max_autotune'?")


def test_option_of_a_wrong_type():
    with pytest.raises(braze.UserError) as e:
        braze.compile(f, options={"max_autotune": "yes"})
    assert str(e.value) == "option 'max_autotune' must be bool; got 'yes'"
    with pytest.raises(braze.UserError, match="option 'recompile_limit' must be None or int; got True"):
        braze.compile(f, options={"recompile_limit": True})
    with pytest.raises(braze.UserError, match="options must be a dict; got 5"):
        braze.compile(f, options=5)


def test_mode_and_options():
    with pytest.raises(braze.UserError, match="mode and options exclude each other"):
        braze.compile(f, mode="default", options={})


@pytest.mark.parametrize("thing", [3, "text", None.__class__.__name__, torch.ones(3), [f]])
def test_not_callable(thing):
    with pytest.raises(braze.errors.UserTypeError) as e:
        braze.compile(thing)
    assert isinstance(e.value, TypeError)
    assert f"got {thing!r} of type {type(thing).__name__}" in str(e.value)
    with pytest.raises(TypeError, match="expected a function, a method or a module"):
        braze.compile()(thing)


def test_class_without_call():
    class Plain:
        pass

    with pytest.raises(TypeError, match="expected a class whose instances can be called; got .*Plain without __call__"):
        braze.compile(Plain)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fullgraph": 1}, "fullgraph must be True or False; got 1"),
        ({"disable": "no"}, "disable must be True or False; got 'no'"),
        ({"dynamic": "auto"}, "dynamic must be True, False or None; got 'auto'"),
        ({"name": 7}, "name must be a str or None; got 7"),
        ({"recompile_limit": 0}, "recompile_limit must be at least 1; got 0"),
    ],
)
def test_wrong_argument(arguments, message):
    with pytest.raises(braze.UserError) as e:
        braze.compile(f, **arguments)
    assert str(e.value) == message


def test_config():
    with pytest.raises(braze.UserError) as e:
        braze.config.recompile_limt = 3
    assert str(e.value).startswith("unknown option 'recompile_limt'; there are recompile_limit, ")
    assert "; did you mean 'recompile_limit'" in str(e.value)
    with pytest.raises(AttributeError, match="did you mean 'recompile_limit'"):
        _ = braze.config.recompile_limi
    with pytest.raises(braze.UserError, match="option 'recompile_limit' must be int; got 'many'"):
        braze.config.recompile_limit = "many"
    with pytest.raises(braze.UserError, match="unknown option 'thread'.*did you mean 'threads'"):
        braze.config.patch(thread=3)
    assert not hasattr(braze.config, "nothing")


@pytest.mark.parametrize(
    ("option", "value", "allowed"), [("isa", "avx9", "avx2"), ("disabled_passes", ["dec"], "decompose")]
)
def test_values_that_the_extension_knows(option, value, allowed):
    """The message lists what this build has."""
    with pytest.raises(ValueError) as e:
        setattr(braze.config, option, value)
    name = value if isinstance(value, str) else value[0]
    assert name in str(e.value) and allowed in str(e.value)
    assert getattr(braze.config, option) == _options.OPTIONS[option].default


def test_unknown_log():
    with pytest.raises(braze.UserError, match="unknown log 'graph_brakes'.*did you mean 'graph_breaks'"):
        braze.set_logs(graph_brakes=True)


def test_versions():
    _versions.check((3, 11), "cpython", "2.13.0+cpu")
    for arguments, message in (
        (((3, 12), "cpython", "2.13.0"), "Braze works with CPython 3.11; this is cpython 3.12"),
        (((3, 11), "pypy", "2.13.0"), "Braze works with CPython 3.11; this is pypy 3.11"),
        (((3, 11), "cpython", "2.12.1"), "Braze works with torch 2.13.0; torch 2.12.1 is installed"),
    ):
        with pytest.raises(ImportError) as e:
            _versions.check(*arguments)
        assert str(e.value) == message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("BRAZE_STRICT", "maybe", "environment variable BRAZE_STRICT must be bool; got 'maybe'"),
        ("BRAZE_THREADS", "two", "environment variable BRAZE_THREADS must be int; got 'two'"),
        ("BRAZE_BACKEND", "fast", "unknown backend 'fast'; allowed are aot_eager, braze, cudagraphs, eager, inductor"),
        ("BRAZE_LOGS", "guard", "unknown log 'guard'"),
    ],
)
def test_environment(name, value, message):
    done = subprocess.run([sys.executable, "-c", "import braze"], env={name: value}, capture_output=True, text=True)
    assert done.returncode == 1 and message in done.stderr


def test_values_from_the_environment():
    program = "import braze; c = braze.config; print(c.strict, c.disabled_passes, c.dynamic, c.threads, c.backend)"
    environment = {
        "BRAZE_STRICT": "1",
        "BRAZE_DISABLED_PASSES": "cse, dce",
        "BRAZE_DYNAMIC": "false",
        "BRAZE_THREADS": "3",
        "BRAZE_BACKEND": "eager",
    }
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == "True ['cse', 'dce'] False 3 eager\n", done.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: setattr(braze.config, "threads", -3), "threads must be at least 0; got -3"),
        (lambda: setattr(braze.config, "recompile_limit", 0), "recompile_limit must be at least 1; got 0"),
        (lambda: braze.compile(f, options={"recompile_limit": -1}), "recompile_limit must be at least 1; got -1"),
        (lambda: braze.config.patch(3), "patch takes a dict, a name and a value, or keywords; got 3"),
        (lambda: braze.set_logs(graph_breaks=3), "log 'graph_breaks' must be True or False; got 3"),
        (
            lambda: braze.explain(f, backend="brase"),
            "unknown backend 'brase'; allowed are aot_eager, braze, cudagraphs, eager, inductor",
        ),
    ],
)
def test_value_out_of_range(call, message):
    with pytest.raises(braze.UserError) as e:
        call()
    assert str(e.value).startswith(message)


@pytest.mark.parametrize("take", [braze.explain, braze.disable])
def test_not_callable_elsewhere(take):
    with pytest.raises(TypeError, match="expected a function, a method or a module; got 3 of type int"):
        take(3)
