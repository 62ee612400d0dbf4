"""ONNX Runtime's GroupQueryAttention (causal, float32) as a path of the peer benchmarks. Needs onnx and onnxruntime."""

from typing import Callable

import torch
from torch import Tensor

from peer_paths import Unavailable
from peer_work import Inputs, Work


def grouped_query_attention(work: Work, x: Inputs) -> Callable[[], Tensor]:
    """A session of one node on token-major inputs [1, N, H * d]; as many threads as torch has."""
    try:
        import onnxruntime
        from onnx import TensorProto, helper
    except ImportError as error:
        raise Unavailable(f"{error}; pip install onnx onnxruntime") from None
    if x.query.dtype != torch.float32:
        raise Unavailable("GroupQueryAttention takes no bfloat16 on the CPU")
    if len(work.bands) > 1 or not work.bands[0].is_causal:
        raise Unavailable("GroupQueryAttention is causal in all heads")

    def rows(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, work.tokens, work.heads * work.head_dim])

    def cache(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, work.heads, work.tokens, work.head_dim])

    node = helper.make_node(
        "GroupQueryAttention", ["query", "key", "value", "", "", "last", "total"], ["out", "keys", "values"],
        domain="com.microsoft", num_heads=work.heads, kv_num_heads=work.heads)
    graph = helper.make_graph(
        [node], "attention",
        [*map(rows, ("query", "key", "value")),
         helper.make_tensor_value_info("last", TensorProto.INT32, [1]),
         helper.make_tensor_value_info("total", TensorProto.INT32, [])],
        [rows("out"), cache("keys"), cache("values")])
    model = helper.make_model(
        graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Its threads would spin into the other paths' turns.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def token_major(tensor: Tensor):
        return tensor.transpose(1, 2).flatten(2).numpy()

    feeds = {
        "query": token_major(x.query), "key": token_major(x.key), "value": token_major(x.value),
        "last": torch.tensor([work.tokens - 1], dtype=torch.int32).numpy(),
        "total": torch.tensor(work.tokens, dtype=torch.int32).numpy(),
    }

    def forward() -> Tensor:
        (out,) = session.run(["out"], feeds)
        return torch.from_numpy(out).unflatten(2, (work.heads, work.head_dim)).transpose(1, 2)

    return forward
