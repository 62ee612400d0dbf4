// The schema of every operator. The public ones are complete from the start, since exported programs pin
// them; arguments without an implementation are refused by name (attention.cpp). Those that begin with an
// underscore are the project's own and may change.
#include <torch/library.h>

#include <string>

namespace iha::ops {
namespace {

// From alpha_q to the end, as far as they are the same in all three public operators.
const std::string kShape =
    "str layout=\"interleaved\", str order=\"flat\", str rope=\"none\", float rope_theta=10000.0, "
    "Tensor? rope_freqs=None, str rope_style=\"half\", float? scale=None, Tensor? query_offset=None, "
    "Tensor? key_offset=None, Tensor? key_lengths=None, Tensor? documents=None, Tensor? prefix_lengths=None, "
    "Tensor? sinks=None, Tensor? q_norm=None, Tensor? k_norm=None, float norm_eps=1e-6, float softcap=0.0, "
    "Tensor? bias=None, Tensor? mode_weights=None, Tensor? block_weights=None";

const std::string kAttention =
    "(Tensor query, Tensor key, Tensor value, *, str patterns=\"global\", Tensor? alpha_q=None, "
    "Tensor? alpha_k=None, Tensor? alpha_v=None, Tensor? collapse=None, " +
    kShape + ", float dropout_p=0.0, SymInt? dropout_seed=None) -> ";

// ops::Arguments, as read_arguments and push_arguments have it.
const std::string kInner =
    "Tensor query, Tensor key, Tensor? value, Tensor? alpha_q, Tensor? alpha_k, Tensor? alpha_v, Tensor? "
    "collapse, "
    "Tensor? sinks, Tensor? mode_weights, Tensor? block_weights, Tensor? rope_freqs, Tensor? query_offset, "
    "Tensor? key_lengths, Tensor? documents, "
    "Tensor? dropout_seed, str patterns, str layout, str order, str rope, float rope_theta, str rope_style, "
    "float? scale, float dropout_p";

}  // namespace

TORCH_LIBRARY(iha, m) {
  const auto define = [&m](const std::string& schema) { m.def(schema.c_str()); };
  define("attention" + kAttention + "Tensor");
  define("attention_with_lse" + kAttention + "(Tensor parts, Tensor lse)");
  define(
      "attention_weights(Tensor query, Tensor key, Tensor rows, *, str patterns=\"global\", Tensor? "
      "alpha_q=None, "
      "Tensor? alpha_k=None, " +
      kShape + ") -> Tensor");
  define("_forward(" + kInner +
         ", bool want_out, bool want_parts) -> (Tensor out, Tensor parts, Tensor lse)");
  define("_backward(Tensor? grad_out, Tensor? grad_parts, Tensor? grad_lse, Tensor parts, Tensor lse, " +
         kInner +
         ", bool[10] wanted) -> (Tensor query, Tensor key, Tensor value, Tensor alpha_q, Tensor alpha_k, "
         "Tensor alpha_v, "
         "Tensor collapse, Tensor sinks, Tensor mode_weights, Tensor block_weights)");
  define("_weights(Tensor rows, " + kInner + ") -> Tensor");
}

}  // namespace iha::ops
