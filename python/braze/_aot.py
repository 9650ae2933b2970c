"""`aot_autograd`: backends for the operators below autograd, forward and backward.

The program's graph is run once on fake tensors, and PyTorch's own autograd engine behind it: both together are one
graph, which is cut into two. What they are compiled to becomes one autograd function.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from . import _C
from .errors import UserTypeError

__all__ = ["aot_autograd", "default_partition"]

_Compiler = Callable[[Any, list[Any]], Callable[..., Any]]


def default_partition(joint: Any, joint_inputs: Sequence[Any], *, num_fwd_outputs: int) -> tuple[Any, Any]:
    """Cuts a joint graph where the tangents come in: what doesn't depend on them belongs to the forward half.

    joint: its placeholders are the inputs, then those named tangents_...; it returns the outputs, then the gradients.
    The forward half returns the outputs and what it saves; the backward half takes that and the tangents.
    """
    nodes = list(joint.graph.nodes)
    results = nodes[-1].args[0]
    late: set[Any] = set()
    for node in nodes:
        tangent = node.op == "placeholder" and node.name.startswith("tangents")
        if tangent or any(n in late for n in node.all_input_nodes):
            late.add(node)
    late.discard(nodes[-1])
    outputs, gradients = results[:num_fwd_outputs], results[num_fwd_outputs:]
    users = [n for n in nodes if n in late]
    needed = {n for node in users for n in node.all_input_nodes} | {g for g in gradients if g is not None}
    saved = [n for n in nodes if n in needed and n not in late]
    forward = _extract(joint, [n for n in nodes[:-1] if n not in late], [], (*outputs, *saved))
    tangents = [n for n in users if n.op == "placeholder"]
    backward = _extract(joint, [n for n in users if n.op != "placeholder"], [*saved, *tangents], gradients)
    return forward, backward


def _extract(module: Any, nodes: Sequence[Any], placeholders: Sequence[Any], results: Sequence[Any]) -> Any:
    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    for node in placeholders:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(None if r is None else copies[r] for r in results))
    return torch.fx.GraphModule(module, graph)


def _decomposed(graph: Any, table: Mapping[Any, Callable[..., Any]], inputs: list[Any]) -> Any:
    """The graph with the operators of the table replaced by what the functions lead to."""

    class Run(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(table.get(target, target), args, kwargs)

    # results that are None have no tensor
    results = graph.graph.output_node().args[0]
    names = [n.name for n in graph.graph.nodes if n.op == "placeholder"]

    def run(fakes: list[Any]) -> tuple[Any, ...]:
        with torch.no_grad():
            return tuple(r for r in Run(graph).run(*fakes) if r is not None)

    made = _C.capture_operators(run, inputs)
    return _renamed(made, names, [r is not None for r in results])


def _renamed(graph: Any, names: Sequence[str], present: Sequence[bool]) -> Any:
    """The graph with these names for its placeholders, and None for the results that are absent."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    for node, name in zip(placeholders, names, strict=True):
        node._rename(name)
        node.target = node.name
    output = graph.graph.output_node()
    results = iter(output.args[0])
    output.args = (tuple(next(results) if here else None for here in present),)
    graph.recompile()
    return graph


class _Program:
    """What is known about the graph module's outputs, and the joint graph."""

    def __init__(self, module: Any, inputs: list[Any]) -> None:
        self.module = module
        self.inputs = inputs
        self.wanted = [i for i, x in enumerate(inputs) if x.requires_grad]
        self.outputs: list[torch.Tensor] = []  # tensors like the outputs; requires_grad: there is a gradient function

    def forward(self) -> Any:
        described: list[tuple[Any, Any, Any, bool]] = []

        def run(fakes: list[Any]) -> tuple[Any, ...]:
            results = tuple(self.module(*fakes))
            described[:] = [(tuple(r.shape), tuple(r.stride()), r.dtype, r.grad_fn is not None) for r in results]
            return results

        graph = _C.capture_operators(run, self.inputs)
        self.outputs = [
            torch.empty_strided(shape, stride, dtype=dtype).requires_grad_(has)
            for shape, stride, dtype, has in described
        ]
        return _renamed(graph, [f"primals_{i}" for i in range(len(self.inputs))], [True] * len(self.outputs))

    def joint(self) -> tuple[Any, list[Any]]:
        tangents = [o.detach() for o in self.outputs if o.requires_grad]
        present: list[bool] = []

        def run(fakes: list[Any]) -> tuple[Any, ...]:
            primals, given = fakes[: len(self.inputs)], fakes[len(self.inputs) :]
            with torch.enable_grad():
                results = tuple(self.module(*primals))
            roots = [r for r in results if r.grad_fn is not None]
            gradients = torch.autograd.grad(roots, [primals[i] for i in self.wanted], given, allow_unused=True)
            present[:] = [True] * len(results) + [g is not None for g in gradients]
            return (*results, *(g for g in gradients if g is not None))

        graph = _C.capture_operators(run, [*self.inputs, *tangents])
        names = [f"primals_{i}" for i in range(len(self.inputs))] + [f"tangents_{i}" for i in range(len(tangents))]
        return _renamed(graph, names, present), [*self.inputs, *tangents]


def _writes_inputs(graph: Any) -> bool:
    """Whether an operator writes memory that an input has."""
    shared = {n for n in graph.graph.nodes if n.op == "placeholder"}
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            if node.target is operator.getitem and node.args[0] in shared:
                shared.add(node)
            continue
        for argument, value in zip(schema.arguments, node.args, strict=False):
            alias = argument.alias_info
            for part in value if isinstance(value, list | tuple) else [value]:
                if alias is not None and isinstance(part, torch.fx.Node) and part in shared:
                    if alias.is_write:
                        return True
                    shared.add(node)
    return False


def _like(tangent: Any, expected: torch.Tensor) -> Any:
    """The tangent with the strides that the graph was made for."""
    if tangent.stride() == expected.stride():
        return tangent
    return torch.empty_strided(expected.shape, expected.stride(), dtype=tangent.dtype).copy_(tangent)


def aot_autograd(
    *,
    fw_compiler: _Compiler,
    bw_compiler: _Compiler | None = None,
    inference_compiler: _Compiler | None = None,
    partition_fn: Callable[..., tuple[Any, Any]] | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> _Compiler:
    """A backend that hands graphs of ATen operators to compilers: `compile(f, backend=aot_autograd(fw_compiler=...))`.

    fw_compiler, bw_compiler: from a GraphModule and example inputs to a callable, for the halves of a graph that needs
    gradients; bw_compiler is fw_compiler unless given. inference_compiler: for graphs that need none.
    partition_fn: `(joint graph, its inputs, num_fwd_outputs=) -> (forward, backward)`; see `default_partition`.
    decompositions: operators -> functions that are called instead, such as `torch._decomp.core_aten_decompositions()`.
    A graph that writes to its inputs while it needs gradients runs in eager.
    """
    for name, given in (("fw_compiler", fw_compiler), ("bw_compiler", bw_compiler), ("partition_fn", partition_fn)):
        if given is not None and not callable(given):
            raise UserTypeError(f"{name} must be a callable; got {given!r} of type {type(given).__name__}")
    backward_compiler = bw_compiler or fw_compiler
    inference = inference_compiler or fw_compiler
    partition = partition_fn or default_partition

    def compile_for(module: Any, inputs: list[Any]) -> Callable[..., Any]:
        program = _Program(module, inputs)
        forward = program.forward()
        if not any(o.requires_grad for o in program.outputs) or not program.wanted:
            if decompositions:
                forward = _decomposed(forward, decompositions, inputs)
            compiled = inference(forward, inputs)
            return lambda *args: tuple(compiled(*args))
        if _writes_inputs(forward):
            return module.forward  # type: ignore[no-any-return]
        joint, joint_inputs = program.joint()
        if decompositions:
            joint = _decomposed(joint, decompositions, joint_inputs)
        halves = partition(joint, joint_inputs, num_fwd_outputs=len(program.outputs))
        return _autograd_function(program, halves, fw_compiler, backward_compiler)

    def backend(module: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        compiled: dict[Any, Callable[..., Any]] = {}

        def run(*inputs: Any) -> Any:
            # sizes that vary, and the numbers that come with them, are constants of these graphs
            numbers = tuple(i for i in inputs if not isinstance(i, torch.Tensor))
            tensors = [i for i in inputs if isinstance(i, torch.Tensor)]
            key = (numbers, tuple((t.shape, t.stride(), t.requires_grad) for t in tensors))
            if key not in compiled:
                compiled[key] = compile_for(_with_numbers(module, inputs), tensors)
            return compiled[key](*tensors)

        if all(isinstance(i, torch.Tensor) for i in example_inputs):
            key = ((), tuple((t.shape, t.stride(), t.requires_grad) for t in example_inputs))
            compiled[key] = compile_for(module, list(example_inputs))
        return run

    return backend


def _with_numbers(module: Any, inputs: Sequence[Any]) -> Any:
    """The module as a function of its tensors only."""
    if all(isinstance(i, torch.Tensor) for i in inputs):
        return module

    class Bound(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            given = iter(tensors)
            return module(*(next(given) if isinstance(i, torch.Tensor) else i for i in inputs))

    return Bound()


def _autograd_function(
    program: _Program, halves: tuple[Any, Any], fw_compiler: _Compiler, bw_compiler: _Compiler
) -> Callable[..., Any]:
    forward, backward = halves
    count = len(program.outputs)
    compiled = fw_compiler(forward, program.inputs)
    # what the backward half takes: like what the forward half saves, then like the outputs
    like = [n.meta.get("example_value") for n in backward.graph.nodes if n.op == "placeholder"]
    examples = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype) for v in like if v is not None]
    compiled_backward = bw_compiler(backward, examples)
    roots = [i for i, o in enumerate(program.outputs) if o.requires_grad]
    fixed = [i for i, o in enumerate(program.outputs) if not o.requires_grad]

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            results = tuple(compiled(*inputs))
            ctx.save_for_backward(*results[count:])
            # an input that is handed out is another tensor than the input
            outputs = tuple(r.view_as(r) if any(r is i for i in inputs) else r for r in results[:count])
            ctx.mark_non_differentiable(*(outputs[i] for i in fixed))
            return outputs

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *tangents: Any) -> Any:
            given = [_like(tangents[i], program.outputs[i]) for i in roots]
            gradients = iter(compiled_backward(*ctx.saved_tensors, *given))
            return tuple(next(gradients) if i in program.wanted else None for i in range(len(program.inputs)))

    return Compiled.apply  # type: ignore[no-any-return]
