"""The operator as PyTorch sees it: gradients by finite differences, torch's own checks of operators, compiled and
exported programs, autocast, errors. Values are checked in C++ (tests/ops); here only what needs Python.
"""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

SOURCE = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def iha(torch_library):
    os.environ["IHA_LIBRARY"] = str(torch_library)
    sys.path.insert(0, str(SOURCE / "python"))
    import iha as package

    return package


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def qkv(batch=2, heads=2, queries=5, keys=5, width=4, kv_heads=None, value_width=None, dtype=torch.float64, grad=True):
    kv_heads = kv_heads or heads
    shapes = [(batch, heads, queries, width), (batch, kv_heads, keys, width), (batch, kv_heads, keys, value_width or width)]
    return [torch.randn(shape, dtype=dtype, requires_grad=grad) for shape in shapes]


def mixing(heads=2, kv_heads=2, pseudo=2, dtype=torch.float64, kind="global"):
    weights = {
        "alpha_q": torch.randn(heads, heads, pseudo, dtype=dtype),
        "alpha_k": torch.randn(kv_heads, kv_heads, pseudo, dtype=dtype),
        "alpha_v": torch.randn(kv_heads, kv_heads, pseudo, dtype=dtype),
    }
    if kind != "mean":
        shape = (heads, pseudo) if kind == "per_head" else (heads, heads, pseudo)
        weights["collapse"] = torch.randn(shape, dtype=dtype)
    return {name: tensor.requires_grad_() for name, tensor in weights.items()}


# Every option takes part in some entry; each is small enough for finite differences.
SETTINGS = {
    "plain": (dict(), dict(patterns="global,causal")),
    "grouped": (dict(heads=4, kv_heads=2), dict(patterns="causal,strided:2,every:2,causal_sliding:1+first:1")),
    "wide_values": (dict(value_width=3, queries=3), dict(patterns="sliding:1", rope="token")),
    "sinks": (dict(), dict(patterns="causal,window:0:1", sinks=(2,))),
    "paper": (dict(queries=4, keys=4), dict(patterns="causal", rope="virtual", mixing="global")),
    "per_head": (dict(queries=4, keys=4), dict(patterns="causal_chunked:3,global", order="token", rope="token", mixing="per_head")),
    "parallel": (dict(), dict(patterns="causal,sliding:1", layout="parallel", rope="virtual", mixing="mean")),
    "dropout": (dict(queries=3, keys=4), dict(patterns="causal,global", mixing="global", dropout_p=0.4, dropout_seed=3)),
    "lengths": (dict(queries=4), dict(key_lengths=[5, 2], query_offset=[1, -2], mixing="global")),
    "documents": (dict(queries=3), dict(patterns="causal,sliding:1+first:1", documents=[[0, 0, 1, 1, 0], [2, 1, 1, 2, 2]])),
    "learned": (dict(), dict(patterns="learned(causal|sliding:1|every:2),learned(global)", sinks=(2,))),
    "learned_pseudo": (dict(queries=4, keys=4), dict(patterns="learned(causal|global),causal", rope="virtual", mixing="global")),
    "dynamic": (dict(heads=4, kv_heads=2), dict(patterns="dynamic:2:1,causal_dynamic:2:1,causal,learned(causal|strided:2)")),
    "dynamic_parallel": (dict(queries=3), dict(patterns="dynamic:3:1", layout="parallel", mixing="per_head", dropout_p=0.3, dropout_seed=5)),
    "partial_rope": (dict(), dict(rope="token", rope_freqs=[0.3], rope_style="adjacent", scale=0.7)),
}


def setting(name, dtype=torch.float64):
    """query, key, value, differentiable options, other options."""
    sizes, options = SETTINGS[name]
    options = dict(options)
    learned = {}
    if "mixing" in options:
        kv_heads = sizes.get("kv_heads", sizes.get("heads", 2))
        learned = mixing(sizes.get("heads", 2), kv_heads, dtype=dtype, kind=options.pop("mixing"))
    if "sinks" in options:
        learned["sinks"] = torch.randn(options.pop("sinks"), dtype=dtype, requires_grad=True)
    patterns, heads = options.get("patterns", "global"), sizes.get("heads", 2)
    if "learned" in patterns:  # positive: the gradient of a pair of weight 0 is 0 by definition
        most = max(entry.count("|") + 1 for entry in patterns.split(",") if "learned" in entry)
        learned["mode_weights"] = (torch.rand(heads, most, dtype=dtype) + 0.2).requires_grad_()
    if "dynamic" in patterns:
        block = int(patterns.split("dynamic:")[1].split(":")[0])
        queries, keys = sizes.get("queries", 5), sizes.get("keys", 5)
        shape = (sizes.get("batch", 2), heads, queries, -(-keys // block))
        learned["block_weights"] = (torch.rand(shape, dtype=dtype) + 0.2).requires_grad_()
    for integer in ("key_lengths", "query_offset", "documents"):
        if integer in options:
            options[integer] = torch.tensor(options[integer])
    if "rope_freqs" in options:
        options["rope_freqs"] = torch.tensor(options["rope_freqs"], dtype=torch.float64)
    return qkv(dtype=dtype, **sizes), learned, options


@pytest.mark.parametrize("name", SETTINGS)
def test_gradcheck(iha, name):
    inputs, learned, options = setting(name)
    names = list(learned)

    def out(query, key, value, *tensors):
        return iha.attention(query, key, value, **dict(zip(names, tensors)), **options)

    def parts_and_lse(query, key, value, *tensors):
        parts, lse = iha.attention_with_lse(query, key, value, **dict(zip(names, tensors)), **options)
        return parts, torch.where(lse.isfinite(), lse, 0)

    assert torch.autograd.gradcheck(out, (*inputs, *learned.values()))
    without_collapse = [tensor for key, tensor in learned.items() if key != "collapse"]
    names = [key for key in learned if key != "collapse"]
    assert torch.autograd.gradcheck(parts_and_lse, (*inputs, *without_collapse))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_opcheck(iha, name, dtype):
    inputs, learned, options = setting(name, dtype)
    for operator in (torch.ops.iha.attention, torch.ops.iha.attention_with_lse):
        torch.library.opcheck(operator.default, tuple(inputs), {**learned, **options}, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["paper", "dropout", "documents", "sinks", "learned", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck_inner_operators(iha, name, dtype):
    inputs, learned, options = setting(name, dtype)
    inputs = [tensor.detach() for tensor in inputs]
    learned = {key: tensor.detach() for key, tensor in learned.items()}
    seed = torch.tensor(options.pop("dropout_seed", 1))
    arguments = (
        *inputs,
        *(learned.get(key) for key in ("alpha_q", "alpha_k", "alpha_v", "collapse", "sinks", "mode_weights", "block_weights")),
        *(options.get(key) for key in ("rope_freqs", "query_offset", "key_lengths", "documents")),
        seed, options.get("patterns", "global"), options.get("layout", "interleaved"), options.get("order", "flat"),
        options.get("rope", "none"), 10000.0, "half", options.get("scale"), options.get("dropout_p", 0.0),
    )
    for want_out, want_parts in ((True, False), (True, True), (False, True)):
        torch.library.opcheck(torch.ops.iha._forward.default, (*arguments, want_out, want_parts))
    out, parts, lse = torch.ops.iha._forward(*arguments, True, True)
    upstream = (torch.randn_like(out), None, torch.randn_like(lse))
    wanted = [tensor is not None for tensor in arguments[:10]]
    for flags in (wanted, [True] + [False] * 9):
        torch.library.opcheck(torch.ops.iha._backward.default, (*upstream, parts, lse, *arguments, flags))
    torch.library.opcheck(torch.ops.iha._weights.default, (torch.tensor([0, 2]), *arguments))


def test_inner_operators_refuse_what_does_not_fit(iha):
    query, key, value = qkv(dtype=torch.float32, grad=False)
    settings = (None,) * 5 + ("global", "interleaved", "flat", "none", 10000.0, "half", None, 0.0)
    arguments = (query, key, value, *(None,) * 7, *settings)
    out, _, lse = torch.ops.iha._forward(*arguments, True, False)
    with pytest.raises(ValueError, match="alpha_q has shape"):
        torch.ops.iha._forward(query, key, value, torch.ones(3, 2, 2), *(None,) * 6, *settings, True, False)
    with pytest.raises(ValueError, match="value is absent"):
        torch.ops.iha._forward(query, key, None, *(None,) * 7, *settings, True, False)
    with pytest.raises(ValueError, match="iha::_backward: lse has shape"):
        torch.ops.iha._backward(out, None, None, out, lse[:1], *arguments, [True] * 3 + [False] * 7)
    with pytest.raises(ValueError, match="iha::_backward: grad_out has shape"):
        torch.ops.iha._backward(out[:, :1], None, None, out, lse, *arguments, [True] * 3 + [False] * 7)


def test_weights_are_checked_operators_too(iha):
    query, key, _ = qkv(grad=False, dtype=torch.float32)
    torch.library.opcheck(torch.ops.iha.attention_weights.default, (query, key, torch.tensor([4, 0])), {"patterns": "causal"})


@pytest.mark.parametrize("name", SETTINGS)
def test_compiles_to_one_graph(iha, name):
    inputs, learned, options = setting(name, torch.float32)

    def loss(query, key, value, learned):
        return iha.attention(query, key, value, **learned, **options).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    tensors = [*inputs, *learned.values()]
    expected = torch.autograd.grad(loss(*inputs, learned), tensors)
    for found, right in zip(torch.autograd.grad(compiled(*inputs, learned), tensors), expected):
        torch.testing.assert_close(found, right, rtol=0, atol=0)


def test_compiles_with_dynamic_shapes(iha):
    graphs = []

    def count(graph, example):
        graphs.append(graph)
        return graph

    def function(query, key, value):
        return iha.attention(query, key, value, patterns="causal,sliding:2", rope="token")

    compiled = torch.compile(function, fullgraph=True, backend=count, dynamic=True)
    for tokens in (6, 9, 17, 40):
        inputs = qkv(queries=tokens, keys=tokens, dtype=torch.float32, grad=False)
        torch.testing.assert_close(compiled(*inputs), function(*inputs), rtol=0, atol=0)
    assert len(graphs) == 1


def test_compiled_dropout_is_new_at_each_call(iha):
    inputs = qkv(queries=20, keys=20, dtype=torch.float32, grad=False)
    compiled = torch.compile(lambda *x: iha.attention(*x, dropout_p=0.5), fullgraph=True, backend="aot_eager")
    first, second = compiled(*inputs), compiled(*inputs)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    again = compiled(*inputs)
    torch.manual_seed(5)
    assert torch.equal(compiled(*inputs), again)
    torch.manual_seed(5)
    assert torch.equal(iha.attention(*inputs, dropout_p=0.5), again)


def test_compiled_seeds_do_not_recompile_for_each_value(iha):
    inputs = qkv(dtype=torch.float32, grad=False)
    compiled = torch.compile(lambda seed, *x: iha.attention(*x, dropout_p=0.5, dropout_seed=seed), fullgraph=True,
                             backend="aot_eager")
    for seed in range(12):  # torch gives up after 8 graphs of one function
        assert torch.equal(compiled(seed, *inputs), iha.attention(*inputs, dropout_p=0.5, dropout_seed=seed))


def test_exports(iha):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.alpha = torch.nn.Parameter(torch.randn(2, 2, 3))

        def forward(self, query, key, value):
            return iha.attention(query, key, value, patterns="causal*2", alpha_q=self.alpha, rope="virtual")

    layer = Layer().eval()
    inputs = tuple(qkv(dtype=torch.float32, grad=False))
    tokens = torch.export.Dim("tokens", min=2, max=1024)
    program = torch.export.export(layer, inputs, dynamic_shapes=[{2: tokens}] * 3)
    assert "iha.attention" in str(program.graph)
    longer = tuple(qkv(queries=11, keys=11, dtype=torch.float32, grad=False))
    torch.testing.assert_close(program.module()(*longer), layer(*longer), rtol=0, atol=0)


def test_meta_tensors_give_shapes_and_strides(iha):
    inputs = [tensor.to("meta") for tensor in qkv(grad=False)]
    real = iha.attention(*qkv(grad=False))
    out = iha.attention(*inputs)
    assert (out.shape, out.stride(), out.dtype) == (real.shape, real.stride(), real.dtype)
    with pytest.raises(ValueError, match="3 query heads is not a multiple of 2 key heads"):
        iha.attention(torch.empty(1, 3, 2, 4, device="meta"), *(torch.empty(1, 2, 2, 4, device="meta"),) * 2)


def test_output_lies_token_major(iha):
    out = iha.attention(*qkv(grad=False))
    assert out.transpose(1, 2).is_contiguous()


def test_double_backward_is_refused_by_name(iha):
    query, key, value = qkv()
    (grad,) = torch.autograd.grad(iha.attention(query, key, value).sum(), query, create_graph=True)
    with pytest.raises(NotImplementedError, match="iha::attention.*double backward"):
        grad.sum().backward()


def test_forward_mode_is_refused_by_name(iha):
    query, key, value = qkv(grad=False)
    with pytest.raises(NotImplementedError, match="iha::attention.*forward-mode"):
        torch.func.jvp(lambda x: iha.attention(x, key, value), (query,), (query,))


def test_autocast_casts_the_three_inputs(iha):
    query, key, value = qkv(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = iha.attention(query, key, value, sinks=torch.zeros(2))
        parts, lse = iha.attention_with_lse(query, key.bfloat16(), value)
        weights = iha.attention_weights(query, key, torch.tensor([0]))
    assert (out.dtype, parts.dtype, lse.dtype, weights.dtype) == (torch.bfloat16,) * 2 + (torch.float32, torch.bfloat16)
    assert torch.equal(out, iha.attention(query.bfloat16(), key.bfloat16(), value.bfloat16(), sinks=torch.zeros(2)))
    out.float().sum().backward()
    assert query.grad.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert iha.attention(*qkv()).dtype == torch.float64


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_torch(iha, causal):
    query, key, value = qkv(heads=4, kv_heads=2, queries=33, keys=33, width=8, dtype=torch.float64, grad=False)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)
    torch.testing.assert_close(iha.attention(query, key, value, patterns="causal" if causal else "global"), expected)


def test_eval_without_dropout_repeats(iha):
    inputs = qkv(grad=False)
    assert torch.equal(iha.attention(*inputs), iha.attention(*inputs, dropout_p=0.0))


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(key_offset=torch.tensor(1)), "key_offset"),
        (dict(prefix_lengths=torch.tensor([1, 1])), "prefix_lengths"),
        (dict(q_norm=torch.ones(4)), "q_norm"),
        (dict(k_norm=torch.ones(4)), "k_norm"),
        (dict(softcap=3.0), "softcap is 3, expected 0"),
        (dict(bias=torch.ones(1)), "bias"),
        (dict(mode_weights=torch.ones(2, 1)), "mode_weights is given, expected None without learned heads"),
        (dict(block_weights=torch.ones(2, 2, 5, 1)), "block_weights is given, expected None without dynamic heads"),
        (dict(patterns="learned(causal|global)"), "mode_weights is None, expected a tensor for the learned heads"),
        (dict(patterns="dynamic:4:1"), "block_weights is None, expected a tensor for the dynamic heads"),
        (dict(patterns="learned(causal|global)", mode_weights=torch.tensor([[1.0, 2], [3, -1]]).double()),
         "a value of mode_weights is -1, expected a finite number of at least 0"),
        (dict(patterns="dynamic:4:1", block_weights=torch.full((2, 2, 5, 2), torch.nan).double()), "block_weights is NaN"),
        (dict(patterns="causl"), "causal"),
        (dict(patterns="causal*3"), "3"),
        (dict(key_lengths=torch.tensor([6, 1])), "key length is 6, expected 0 to 5"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_values_raise_value_error(iha, options, message):
    with pytest.raises(ValueError, match=f"iha::attention: .*{message}"):
        torch.ops.iha.attention(*qkv(grad=False), **options)


def test_package_names_where_it_looked():
    environment = {**os.environ, "IHA_LIBRARY": "/nowhere/libiha_torch.so", "PYTHONPATH": str(SOURCE / "python")}
    result = subprocess.run([sys.executable, "-c", "import iha"], env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode != 0 and "/nowhere/libiha_torch.so" in result.stderr
